// The devices that any part of the page has opened, and their uncaught errors.
import { complain } from './show.js';

export const errors = [];
export const devices = [];

// Counts uncaught errors: the library catches all of its own, so there should be none.
export function watch() {
  const open = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await open.apply(this, args);
    device.addEventListener('uncapturederror', event => {
      errors.push(event.error.message);
      complain(`An uncaught error: ${event.error.message}`);
    });
    devices.push(device);
    return device;
  };
}

export function destroyDevices(from = 0) {
  for (const device of devices.splice(from)) device.destroy();
}
