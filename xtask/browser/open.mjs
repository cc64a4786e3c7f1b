// Chromium without a window, by Playwright. xtask names both in the environment.
import assert from 'node:assert/strict';

const { chromium } = await import(`file://${process.env.PLAYWRIGHT}/index.mjs`);

// Options that give a page WebGPU on a machine without a GPU.
export const WEBGPU = [
  '--enable-unsafe-webgpu', '--enable-features=Vulkan', '--use-webgpu-adapter=swiftshader',
];

// A browser with one page, which may load files and from one site of this machine.
export async function open({ args = ['--disable-gpu'], site = 'file:' } = {}) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: [...args, '--disable-quic', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  const page = await browser.newPage({ viewport: { width: 1440, height: 1060 } });
  page.setDefaultTimeout(60_000);
  // Errors of the page, what it says on the console, and its requests to the network.
  const complaints = [];
  const ours = ['file:', 'data:', 'about:', site];
  page.on('pageerror', error => complaints.push(`uncaught: ${error.stack}`));
  page.on('crash', () => complaints.push('the page crashed'));
  page.on('console', said => complaints.push(`${said.type()}: ${said.text()}`));
  page.on('request', request => {
    if (!ours.some(begin => request.url().startsWith(begin))) complaints.push(request.url());
  });

  return Object.assign(page, {
    // Opens an address, and waits until the page says that it is ready. Returns its milliseconds.
    async ready(url, patience = 60_000) {
      const before = complaints.length;
      await page.goto(url);
      const ms = page.waitForFunction(() => document.documentElement.dataset.readyMs, null,
        { timeout: patience, polling: 20 });
      const fails = new Promise((_, fail) => {
        const look = () => fail(new Error(`${url} fails: ${complaints.slice(before)}`));
        page.once('pageerror', look);
        page.once('crash', look);
      });
      return Math.round(await (await Promise.race([ms, fails])).jsonValue());
    },
    // Waits two frames, so that requested painting is done.
    settle: () => page.evaluate(() => new Promise(done =>
      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))),
    // Fails unless a function of the page returns true.
    async holds(what, condition, argument) {
      const is = await page.evaluate(condition, argument);
      assert.equal(is, true, `not so: ${what} (${is}): ${condition}`);
    },
    // Fails if the page complained of something else than what is known.
    quiet(known = '\0') {
      assert.deepEqual(complaints.filter(said => !said.includes(known)), []);
    },
    close: () => browser.close(),
  });
}
