// The page of `dcctl report html` in a real browser: what is seen, what is found, what keys do, and that nothing in a journal
// becomes part of the page. DCCTL_PICTURES=FOLDER keeps pictures of all that is looked at.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Browser } from "./browser.mjs";

const here = import.meta.dirname;
const dcctl = process.env.DCCTL ?? join(process.env.CARGO_TARGET_DIR ?? join(here, "../../target"), "debug/dcctl");
const pictures = process.env.DCCTL_PICTURES;
let folder;
let browser;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "dcctl-html-"));
  if (pictures) mkdirSync(pictures, { recursive: true });
  browser = await Browser.start();
});
after(async () => {
  await browser?.end();
  rmSync(folder, { recursive: true, force: true });
});

function page(name, journal) {
  const path = join(folder, `${name}.html`);
  const made = spawnSync(dcctl, ["report", "html", "-", "-o", path], { input: journal, encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(made.status, 0, made.stderr);
  return path;
}

const journal = (name) => readFileSync(join(here, "journals", `${name}.jsonl`), "utf8");
const picture = async (name, most) => pictures && browser.picture(join(pictures, `${name}.png`), most);
const text = (selector) => browser.see(`document.querySelector(${JSON.stringify(selector)}).innerText`);
const selected = () => browser.see("document.querySelector('[aria-selected=true] .text')?.textContent ?? null");

// A journal of so many events, most of them output of a tool.
function huge(count) {
  const line = (seq, name, level, msg, data, step) => JSON.stringify({ v: 1, seq, time: new Date(Date.UTC(2026, 10, 30, 1) + seq * 7).toISOString().replace("Z", "000Z"), type: name, level, msg, run: "r1", elapsed_ms: seq * 7, ...(step && { step }), data });
  const lines = [
    line(0, "run.started", "info", "dcctl starts", { schema: "s", schema_version: "1.0", dcctl: "0.1.0", command: "bootstrap", instance: "fleet", dry_run: false }),
    line(1, "run.planned", "info", "1 step planned", { steps: [{ id: "apply", title: "Apply infrastructure" }] }),
    line(2, "step.started", "info", "it begins", { id: "apply", title: "Apply infrastructure", index: 1, total: 1 }, "apply"),
    line(3, "process.started", "info", "tofu apply was started", { program: "tofu apply", pid: 7 }, "apply"),
  ];
  for (let seq = lines.length; seq < count - 1; seq += 1) {
    const address = `module.fleet["region-${seq % 17}"].demo_object.machine[${seq}]`;
    if (seq % 20 === 0) lines.push(line(seq, "resource.completed", "info", `${address}: create is complete`, { address, action: "create", elapsed_ms: 100 }, "apply"));
    else if (seq % 5_003 === 0) lines.push(line(seq, "diagnostic", "warn", "a warning", { severity: "warning", origin: "OpenTofu", summary: `warning number ${seq}` }, "apply"));
    else lines.push(line(seq, "process.output", "debug", "", { program: "tofu apply", stream: "stdout", text: `${address}: Still creating... [${seq}s elapsed]` }, "apply"));
  }
  lines.push(line(count - 1, "step.finished", "info", "it is done", { id: "apply", title: "Apply infrastructure", index: 1, total: 1, outcome: "done", duration_ms: count * 7 }, "apply"));
  return `${lines.join("\n")}\n`;
}

test("each end of a run is told at the top, in light and dark, wide and narrow, without a complaint of the browser", async () => {
  const heads = {
    succeeded: "bootstrap demo succeeded", failed: "bootstrap demo failed", stopped: "bootstrap demo was stopped",
    partial: "bootstrap demo was stopped", blocked: "bootstrap demo is blocked", refused: "bootstrap demo was refused",
    "cut-off": "bootstrap demo: the journal ends without a verdict",
  };
  for (const [name, head] of Object.entries(heads)) {
    const path = page(name, journal(name));
    for (const [width, theme] of [[1280, "light"], [1280, "dark"], [390, "light"], [390, "dark"]]) {
      await browser.look(width, theme);
      await browser.open(path);
      await browser.until("document.querySelectorAll('.row').length > 0");
      assert.equal(await text("h1"), head);
      assert.deepEqual(browser.complaints(), []);
      assert.ok(await browser.see("document.documentElement.scrollWidth <= innerWidth"), `${name} is wider than ${width}`);
      await picture(`${name}-${width}-${theme}`);
    }
  }
});

test("a journal that was cut off says what was last seen and shows no verdict", async () => {
  await browser.look(1280, "light");
  await browser.open(page("cut", journal("cut-off")));
  const said = await text("#verdict");
  assert.match(said, /the journal ends without a verdict/);
  assert.match(said, /was not seen to be given back/);
  assert.match(said, /dcctl runs show/);
  assert.doesNotMatch(said, /exit code/);
});

test("text and its ground differ enough to be read, in both themes", async () => {
  const contrast = `(() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgb = (colors) => { canvas.clearRect(0, 0, 1, 1); for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); } return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
      const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      if (!own || !element.checkVisibility() || element.closest("svg, .unseen, option, script, .skip")) continue;
      const grounds = [];
      for (let at = element; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
      const [one, other] = [light(rgb(grounds)), light(rgb([...grounds, getComputedStyle(element).color]))].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (other + 0.05);
      if (ratio < 4.5) found.push(element.className + " " + element.textContent.slice(0, 30) + " " + ratio.toFixed(2));
    }
    return found;
  })()`;
  for (const name of ["failed", "stopped", "cut-off", "succeeded"]) {
    for (const theme of ["light", "dark"]) {
      await browser.look(1280, theme);
      await browser.open(page(name, journal(name)));
      assert.deepEqual(await browser.see(contrast), [], `${name}, ${theme}`);
    }
  }
});

test("the switch of the theme wins over the system, is kept, and goes back", async () => {
  await browser.look(1280, "light");
  const path = page("failed", journal("failed"));
  await browser.open(path);
  const ground = () => browser.see("getComputedStyle(document.body).backgroundColor");
  const light = await ground();
  await browser.see("document.getElementById('theme').click(), document.getElementById('theme').click()");
  assert.equal(await text("#theme"), "Theme: dark");
  assert.notEqual(await ground(), light);
  await browser.open(path);
  assert.notEqual(await ground(), light);
  await browser.see("document.getElementById('theme').click()");
  assert.equal(await ground(), light);
});

test("with keys alone a person searches, finds, walks through the log and comes back", async () => {
  await browser.look(1280, "light");
  await browser.open(page("failed", journal("failed")));
  await browser.press("/");
  assert.equal(await browser.see("document.activeElement.id"), "find");
  await browser.type("QUOTA exceeded");
  await browser.until("document.getElementById('count').textContent.includes(' of ')");
  await browser.press("Enter");
  assert.equal(await browser.see("document.activeElement.id"), "list");
  assert.match(await selected(), /quota of this project is exceeded/);
  await picture("search");
  const found = await selected();
  await browser.press("Enter");
  assert.equal(await browser.see("document.getElementById('find').value"), "");
  assert.equal(await selected(), found);
  await browser.press("Home");
  assert.match(await selected(), /^dcctl .* starts bootstrap demo/);
  await browser.press("n");
  assert.match(await selected(), /failed/);
  await browser.press("End", "ArrowUp", "ArrowDown");
  assert.match(await selected(), /exit code 1/);
  assert.match(await text("#whole"), /run\.finished/);
  // Every place that Tab leads to shows that it has the focus.
  await browser.open(page("failed", journal("failed")));
  const seen = new Set();
  for (let step = 0; step < 60; step += 1) {
    await browser.press("Tab");
    const { name, shows } = await browser.see(`(() => { const at = document.activeElement; const style = getComputedStyle(at);
      return { name: at === document.body ? "" : at.id || at.textContent.slice(0, 20), shows: style.outlineStyle !== "none" }; })()`);
    if (!name) break;
    assert.ok(shows, name);
    seen.add(name);
  }
  for (const name of ["theme", "find", "what", "level", "step", "list", "To the log"]) assert.ok(seen.has(name), `${name} of ${[...seen]}`);
});

test("a diagnostic leads to its line in the log, and a step to its lines", async () => {
  await browser.look(1280, "light");
  const path = page("failed", journal("failed"));
  await browser.open(path);
  const hash = await browser.see("document.querySelector('.said a').getAttribute('href')");
  await browser.open(path, hash);
  await browser.until("document.querySelector('[aria-selected=true]')");
  assert.match(await selected(), /quota of this project/);
  await browser.see("[...document.querySelectorAll('a[data-step]')].find((link) => link.textContent === 'Check the cluster').click()");
  assert.match(await text("#count"), /^2 of /);
});

test("stop and signals are marked in the picture and in the log", async () => {
  await browser.look(1280, "light");
  await browser.open(page("stopped", journal("stopped")));
  assert.ok(await browser.see("document.querySelectorAll('.bar .stop').length") > 5);
  assert.match(await text(".lanes"), /Asked to stop\s+by SIGTERM/);
  // The lock was renewed once, which is a dot in its lane.
  assert.equal(journal("stopped").split('"type":"lock.renewed"').length, 2);
  assert.equal(await browser.see("document.querySelector('.lane.lock .own path.dot').getAttribute('d').split('M').length"), 2);
  await browser.see("document.getElementById('what').value = 'stops', document.getElementById('what').dispatchEvent(new Event('change'))");
  assert.equal(await text("#count"), `4 of ${journal("stopped").trim().split("\n").length} events`);
  assert.ok(await browser.see("[...document.querySelectorAll('.row')].every((row) => row.classList.contains('stops'))"));
});

test("a screen reader is given landmarks, headings, names and the state of every step", async () => {
  await browser.look(1280, "light");
  await browser.open(page("failed", journal("failed")));
  const spoken = await browser.spoken();
  const has = (role, name) => assert.ok(spoken.some((node) => node.role === role && node.name.includes(name)), `${role} ${name}`);
  for (const role of ["banner", "navigation", "main", "contentinfo", "search"]) has(role, "");
  for (const name of ["Verdict", "Timeline", "Resources", "Diagnostics", "Log"]) has("region", name);
  has("heading", "bootstrap demo failed");
  has("searchbox", "Search");
  has("combobox", "Level");
  has("listbox", "Events");
  has("option", "starts bootstrap demo");
  has("columnheader", "Status");
  assert.match(await browser.see("document.querySelector('.step.failed .name').textContent"), /failed: .*Apply infrastructure/);
  for (const node of spoken.filter(({ role }) => ["button", "searchbox", "combobox", "link", "listbox"].includes(role))) assert.ok(node.name, JSON.stringify(node));
});

test("nothing that a journal holds becomes part of the page", async () => {
  await browser.look(1280, "light");
  const attacks = ["</script><script>window.hit=1</script>", "<img src=x onerror=window.hit=1>", "\"><svg onload=window.hit=1>", "javascript:window.hit=1", "<!--<script>", "\u202egnp.exe", "\u001b[31mred\u001b[0m\u0007", "'); window.hit=1; ('"];
  for (const attack of attacks) {
    const quoted = JSON.stringify(attack).slice(1, -1);
    // In the place of every string of the journal that is not a word of the format.
    const told = journal("failed").replaceAll("demo", quoted).replaceAll("OpenTofu", quoted).replaceAll("tofu apply", quoted);
    await browser.open(page("attack", told));
    await browser.until("document.querySelectorAll('.row').length > 0");
    await browser.press("/");
    await browser.type("a");
    await browser.press("Enter", "n");
    assert.equal(await browser.see("window.hit"), undefined, attack);
    assert.equal(await browser.see("document.querySelectorAll('img, iframe, object, script:not(#data)').length"), 1, attack);
    assert.deepEqual(browser.complaints(), [], attack);
    assert.ok(await browser.see("!/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)"), attack);
  }
  const bytes = Buffer.concat([Buffer.from(journal("failed")), Buffer.from([0xff, 0xfe, 0x80, 0x0a])]);
  await browser.open(page("bytes", bytes));
  assert.match(await text(".remarks"), /1 line of the file/);
});

test("a hundred thousand events load, scroll and are all found", async () => {
  await browser.look(1280, "light");
  const path = page("huge", huge(100_000));
  const loaded = await browser.open(path);
  await browser.until("document.querySelectorAll('.row').length > 0");
  const size = statSync(path).size;
  console.log(`100,000 events: ${(size / 1e6).toFixed(1)} MB, loaded after ${loaded.toFixed(0)} ms`);
  assert.ok(size < 20e6);
  assert.equal(await text("#count"), "100,000 events");
  assert.ok(await browser.see("document.querySelectorAll('.row').length < 100"));
  const took = await browser.see(`(() => { const from = performance.now(); const find = document.getElementById('find');
    find.value = 'machine[77777]'; find.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true })); return performance.now() - from; })()`);
  console.log(`the first search took ${took.toFixed(0)} ms`);
  assert.equal(await text("#count"), "1 of 100,000 events");
  assert.match(await selected(), /machine\[77777\]/);
  await browser.press("Enter", "End");
  assert.match(await selected(), /step 1\/1 Apply infrastructure is done/);
  await browser.press("Home", "PageDown");
  assert.match(await selected(), /machine\[/);
  await picture("huge", 2_500);
});

// The page of a small journal with so many lines of output put into its log: only the browser is asked, and it reads data.
function stretched(name, count) {
  const path = page(name, huge(100));
  const [, head, data, tail] = /^(.*<script[^>]* id="data">)(.*?)(<\/script>.*)$/s.exec(readFileSync(path, "utf8"));
  const log = JSON.parse(data);
  const last = log.rows.pop();
  const [, output] = log.rows[50 - 1];
  while (log.rows.length < count - 1) {
    const seq = log.rows.length;
    log.rows.push([seq * 7, output, `demo_object.machine[${seq}]: Still creating... [${seq}s elapsed]`]);
  }
  log.rows.push([count * 7, ...last.slice(1)]);
  writeFileSync(path, `${head}${JSON.stringify(log)}${tail}`);
  return path;
}

test("a bar stands beside the title of its lane", async () => {
  await browser.look(1280, "light");
  await browser.open(page("beside", journal("stopped")));
  const middles = await browser.see(`[...document.querySelectorAll('.lane')].flatMap((lane) => {
    const [title, bar] = [lane.querySelector('.name a, .name .program'), lane.querySelector('.line')];
    if (!title || !bar) return [];
    return [[title, bar].map((element) => element.getClientRects()[0]).map(({ top, height }) => top + height / 2)];
  })`);
  assert.ok(middles.length > 5);
  for (const [title, bar] of middles) assert.ok(Math.abs(title - bar) <= 1, `${bar} beside ${title}`);
});

test("more lines than a browser draws in one piece are all reached", async () => {
  await browser.look(1280, "light");
  await browser.open(stretched("endless", 510_000));
  await browser.until("document.querySelectorAll('.row').length > 0");
  await browser.see("document.getElementById('list').focus({ preventScroll: true })");
  await browser.press("End");
  assert.match(await selected(), /Apply infrastructure is done/);
  await browser.see("document.getElementById('list').scrollTop = document.getElementById('list').scrollHeight / 2");
  await browser.until("/machine\\[25\\d{4}\\]/.test(document.getElementById('tall').textContent)");
  await browser.press("ArrowUp", "ArrowUp");
  assert.match(await selected(), /machine\[50999\d\]/);
});

test("without its script the page still says everything but the log", async () => {
  const path = page("plain", journal("failed"));
  const html = readFileSync(path, "utf8");
  // As where a server forbids scripts: the policy allows the one that is not there.
  writeFileSync(path, html.replace(/script-src [^;]*;/, "script-src 'none';"));
  await browser.look(1280, "light");
  await browser.open(path);
  assert.match(await text("#verdict"), /What to do now/);
  assert.match(await text("#unscripted"), /dcctl report human/);
  assert.match(await text("#things"), /demo_object\.database/);
});
