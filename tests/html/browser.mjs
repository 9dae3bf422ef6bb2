// A browser that a test looks through: Chromium, asked over a pipe in its own protocol. Nothing listens anywhere, and
// nothing but files can be loaded.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// Chromium of its own accord asks for updates and the like: it finds no name and no address.
const ALONE = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
  "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9", "--disable-extensions", "--metrics-recording-only"];

export class Browser {
  #process; #folder; #next = 1; #waiting = new Map(); #events = []; #session; #text = "";

  // Starts it with one empty tab.
  static async start() {
    const browser = new Browser();
    browser.#folder = mkdtempSync(join(tmpdir(), "dcctl-browser-"));
    const flags = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", `--user-data-dir=${browser.#folder}`];
    // A sandbox inside a container is not to be had, and root gets none.
    if (process.getuid() === 0 || process.env.CI) flags.push("--no-sandbox");
    browser.#process = spawn(process.env.CHROMIUM ?? "chromium", [...flags, ...ALONE, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.#process.stdio[4].setEncoding("utf8").on("data", (piece) => browser.#hear(piece));
    browser.#process.on("exit", () => browser.#waiting.forEach(({ fail }) => fail(new Error("Chromium has ended"))));
    const { targetInfos } = await browser.#ask("Target.getTargets", {}, null);
    const { targetId } = targetInfos.find(({ type }) => type === "page");
    ({ sessionId: browser.#session } = await browser.#ask("Target.attachToTarget", { targetId, flatten: true }, null));
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.#ask(`${domain}.enable`);
    return browser;
  }

  #hear(piece) {
    const messages = (this.#text + piece).split("\0");
    this.#text = messages.pop();
    for (const message of messages.map(JSON.parse)) {
      const waits = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (!message.id) this.#events.push(message);
      else if (message.error) waits.fail(new Error(message.error.message));
      else waits.done(message.result);
    }
  }

  #ask(method, params = {}, sessionId = this.#session) {
    const id = this.#next++;
    this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, ...(sessionId && { sessionId }) })}\0`);
    return new Promise((done, fail) => this.#waiting.set(id, { done, fail }));
  }

  // Opens a file and waits until it is loaded; says how many milliseconds that took.
  async open(path, hash = "") {
    this.#events = [];
    const from = performance.now();
    await this.#ask("Page.navigate", { url: pathToFileURL(path).href + hash });
    await this.until("document.readyState === 'complete' && location.protocol === 'file:'");
    return performance.now() - from;
  }

  // What an expression of the page comes to.
  async see(expression) {
    const { result, exceptionDetails } = await this.#ask("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Waits until an expression of the page is true: a frame of the page lies between two looks.
  async until(expression) {
    for (const limit = performance.now() + 60_000; performance.now() < limit;) {
      const seen = await this.see(`new Promise((done) => requestAnimationFrame(() => done(Boolean(${expression}))))`).catch(() => false);
      if (seen) return;
    }
    throw new Error(`it did not come true: ${expression}`);
  }

  // Presses keys, by their names.
  async press(...keys) {
    const codes = { Tab: 9, Enter: 13, Escape: 27, PageUp: 33, PageDown: 34, End: 35, Home: 36, ArrowUp: 38, ArrowDown: 40 };
    for (const key of keys) {
      const one = { key, windowsVirtualKeyCode: codes[key] ?? key.toUpperCase().charCodeAt(0), ...(key.length === 1 && { text: key }), ...(key === "Enter" && { text: "\r" }) };
      await this.#ask("Input.dispatchKeyEvent", { type: "keyDown", ...one });
      await this.#ask("Input.dispatchKeyEvent", { type: "keyUp", ...one });
    }
  }

  // Types a text into what has the focus.
  type(text) {
    return this.#ask("Input.insertText", { text });
  }

  // How wide the window is, and what the system prefers.
  async look(width, theme) {
    await this.#ask("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: false });
    await this.#ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: theme }] });
  }

  // A picture of the whole page, or of so much of it from above.
  async picture(path, most = 20_000) {
    const { cssContentSize: { width, height } } = await this.#ask("Page.getLayoutMetrics");
    const clip = { x: 0, y: 0, width, height: Math.min(height, most), scale: 1 };
    const { data } = await this.#ask("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip });
    writeFileSync(path, Buffer.from(data, "base64"));
  }

  // The tree that a screen reader is given: role and name of each node.
  async spoken() {
    const { nodes } = await this.#ask("Accessibility.getFullAXTree");
    return nodes.filter((node) => !node.ignored).map((node) => ({ role: node.role?.value, name: node.name?.value ?? "" }));
  }

  // What went wrong in the page since it was opened, and what it asked for beside itself.
  complaints() {
    const said = ({ method, params }) => {
      if (method === "Runtime.exceptionThrown") return [params.exceptionDetails.exception?.description ?? params.exceptionDetails.text];
      if (method === "Log.entryAdded" && params.entry.level !== "verbose") return [params.entry.text];
      const url = method === "Network.requestWillBeSent" ? params.request.url : "";
      return url && !url.startsWith("file:") && !url.startsWith("data:") ? [`it asks for ${url}`] : [];
    };
    return this.#events.flatMap(said);
  }

  async end() {
    const ended = new Promise((done) => this.#process.once("exit", done));
    this.#ask("Browser.close", {}, null).catch(() => this.#process.kill("SIGKILL"));
    await ended;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
