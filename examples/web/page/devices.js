// The devices that the page has opened, by whatever part of it, and the errors of theirs that nobody caught.
import { complain } from './show.js';

export const errors = [];
export const devices = [];

// What nobody caught is counted: the library's own errors are all caught, so there is none.
export function watch() {
  const open = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await open.apply(this, args);
    device.addEventListener('uncapturederror', event => {
      errors.push(event.error.message);
      complain(`An error that nobody caught: ${event.error.message}`);
    });
    devices.push(device);
    return device;
  };
}

export function destroyDevices(from = 0) {
  for (const device of devices.splice(from)) device.destroy();
}
