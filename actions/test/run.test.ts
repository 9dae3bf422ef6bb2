// The parts of actions/run that can be seen alone; whole workflows are tested from tests/it/github.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { place, reason } from "../run/src/annotate.ts";
import { show, start } from "../run/src/child.ts";
import { milliseconds, INPUTS, readInputs } from "../run/src/inputs.ts";
import { empty, isOver, type Journal, read, take } from "../run/src/journal.ts";
import { Groups } from "../run/src/log.ts";
import { secretsOf } from "../run/src/mask.ts";
import { duration, summary } from "../run/src/summary.ts";

function grouped(lines: string[]): string {
  let text = "";
  const groups = new Groups((piece) => (text += piece));
  for (const line of lines) groups.line(line);
  groups.end();
  return text;
}

function event(type: string, data: object): string {
  return JSON.stringify({ v: 1, seq: 0, time: "", type, level: "info", msg: `${type} said`, run: "01je", elapsed_ms: 0, data });
}

function journal(...lines: string[]): Journal {
  const journal = empty();
  for (const line of lines) take(journal, line);
  return journal;
}

test("a heading opens a group, and what follows the steps is outside of all", () => {
  const lines = ["dcctl 0.1.0  install", "  files       /tmp", "", "1/2  Check", "     ✓ done", "", "2/2  Claim     +3s", "     ✗ no", "", "  why   x"];
  assert.equal(
    grouped(lines),
    "dcctl 0.1.0  install\n  files       /tmp\n\n::group::1/2  Check\n     ✓ done\n\n::endgroup::\n" +
      "::group::2/2  Claim     +3s\n     ✗ no\n\n::endgroup::\n  why   x\n",
  );
});

test("a log that ends within a step ends its group", () => {
  assert.equal(grouped(["10/12  Verify", "       deeper"]), "::group::10/12  Verify\n       deeper\n::endgroup::\n");
});

test("a torn line, one of another version and what tools printed say nothing", () => {
  const output = event("process.output", { text: 'it says "type":"run.finished"' });
  const said = journal('{"v":1,"type":"run.fin', '{"v":2,"type":"run.finished","data":{}}', output, "");
  assert.deepEqual(said, empty());
});

test("a file of events is read to where it comes", async () => {
  const path = join(mkdtempSync(join(tmpdir(), "dcctl-test-")), "events.jsonl");
  writeFileSync(path, `${event("run.started", { command: "install", run_dir: "/runs/1" })}\n{"v":1,"ty`);
  const found = await read(path);
  assert.deepEqual([found.run, found.folder, found.subject, found.verdict], ["01je", "/runs/1", "install", undefined]);
  assert.deepEqual(await read(`${path}.none`), empty());
});

test("a run is over when its journal ends with the verdict, or is gone", () => {
  const folder = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  assert.equal(isOver(folder), true);
  writeFileSync(join(folder, "events.jsonl"), `${event("run.started", {})}\n`);
  assert.equal(isOver(folder), false);
  writeFileSync(join(folder, "events.jsonl"), `${"x".repeat(20_000)}\n${event("run.finished", VERDICT)}\n`);
  assert.equal(isOver(folder), true);
});

const VERDICT = {
  subject: "install", outcome: "failed", exit_code: 1, lock: "released", duration_ms: 1, next: ["Do <this>."],
  survived: [{ program: "tofu apply", pid: 7, name: "plugin" }],
  failure: { code: "infrastructure.failed", message: "no & no", causes: ["@alice's quota\n\n# is full"] },
};

test("a summary says verdict, why, what to do, steps and resources, and nothing of it is markup or calls a person", () => {
  const text = summary(
    journal(
      event("run.started", { command: "install", kube_context: "<b>", run_dir: "/runs/1", holder: "me" }),
      event("run.planned", { steps: [{ id: "a", title: "First" }, { id: "b", title: "Second" }] }),
      event("step.started", { id: "a", title: "First" }),
      event("resource.completed", { address: "x.y", action: "create" }),
      event("step.finished", { id: "a", title: "First", outcome: "failed", duration_ms: 61000, note: "2 created" }),
      event("run.finished", VERDICT),
    ),
  );
  for (const part of ["❌ run.finished said", "&lt;b&gt;", "no &amp; no", "&#64;alice's quota<br><br># is full", "Do &lt;this&gt;.", "process 7 (plugin) of tofu apply"]) {
    assert.ok(text.includes(part), `${part} in ${text}`);
  }
  for (const part of ["<td>First</td><td>❌</td><td>2 created</td><td>1m1s</td>", "<td>Second</td><td></td><td>not begun</td>"]) {
    assert.ok(text.includes(part), `${part} in ${text}`);
  }
  assert.ok(text.includes("Resources changed: 1") && !text.includes("@"));
});

test("a summary without a verdict says that there is none and who holds the lock", () => {
  const text = summary(journal(event("run.started", { command: "install", holder: "me/1" }), event("lock.claimed", {})), "It goes on.");
  assert.ok(text.includes("no verdict yet") && text.includes("held by the run, as me/1") && text.includes("It goes on."));
});

test("a summary is never larger than what GitHub takes", () => {
  const long = "x".repeat(15_000);
  const known = journal(event("run.started", { command: "install" }));
  for (let index = 0; index < 5000; index += 1) {
    take(known, event("resource.completed", { address: `${long}${index}`, action: "create" }));
  }
  const steps = Array.from({ length: 2000 }, (_, index) => ({ id: `${index}`, title: long }));
  take(known, event("run.planned", { steps: steps.slice(0, 10) }));
  assert.ok(Buffer.byteLength(summary(known)) < 1024 * 1024 && summary(known).includes("Resources changed: 5000"));
  take(known, event("run.planned", { steps }));
  assert.ok(Buffer.byteLength(summary(known)) < 1024 * 1024);
});

test("a diagnostic is placed where its file lies in the workspace, and nowhere else", () => {
  const workspace = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  const bundle = join(workspace, "bundle");
  for (const root of ["shared", "one"]) {
    mkdirSync(join(bundle, root), { recursive: true });
    writeFileSync(join(bundle, root, "main.tf"), "");
  }
  writeFileSync(join(bundle, "bundle.yaml"), "prerequisites: { root: shared }\ninstance:\n  infrastructure: { root: ./one }\n");
  const about = (source: string, step = "apply-infrastructure") => ({ severity: "error", origin: "OpenTofu", summary: "no", source, step });
  assert.deepEqual(place(about("main.tf:12"), bundle, workspace), { file: "bundle/one/main.tf", startLine: 12 });
  assert.deepEqual(place(about("main.tf:3", "apply-prerequisites"), bundle, workspace), { file: "bundle/shared/main.tf", startLine: 3 });
  assert.deepEqual(place(about("other.tf:1"), bundle, workspace), {});
  assert.deepEqual(place(about("main.tf:1"), bundle, join(workspace, "deeper")), {});
  assert.deepEqual(place(about("main.tf:1"), join(workspace, "bundle.tar.gz"), workspace), {});
  assert.deepEqual(place(about("a plan"), bundle, workspace), {});
});

test("the reason is the verdict's sentence, what failed and what to do", () => {
  assert.equal(reason(journal(event("run.finished", VERDICT))), "run.finished said\nno & no\n@alice's quota\n\n# is full\nDo <this>.");
});

test("what was given as a variable and what a kubeconfig has of credentials is hidden, and plain settings are not", () => {
  const environment = {
    DCCTL_VAR_DB_PASSWORD: "correct horse", DCCTL_VAR_PORT: "188300", DCCTL_VAR_ON: "true", DCCTL_VAR_KEY: "-----BEGIN\nabcdefgh\n", DCCTL_VAR_FILE: "/etc/vars.yaml", PATH: "/usr/bin/env",
  };
  const kubeconfig = "users:\n- name: a\n  user:\n    token: sesame-open\n    client-key-data: 'QUJDREVG'\n    username: somebody\n";
  assert.deepEqual(secretsOf(environment, kubeconfig), ["correct horse", "-----BEGIN", "abcdefgh", "sesame-open", "QUJDREVG"]);
});

test("durations are read and told", () => {
  const read = ["90", "90s", "4m", "1h", "4m30s", "1h30m"].map(milliseconds);
  assert.deepEqual(read, [90_000, 90_000, 240_000, 3_600_000, 270_000, 5_400_000]);
  for (const wrong of ["soon", "", "4m4m", "30s4m", "-1s", "1.5s"]) assert.throws(() => milliseconds(wrong), /is not a duration/);
  assert.deepEqual([400, 42_300, 81_900].map(duration), ["0.4s", "42s", "1m22s"]);
});

/** The command line that inputs make, without the files that are always written. */
function wordsOf(inputs: Record<string, string>): string[] {
  const given = Object.entries(inputs).map(([name, value]) => [`INPUT_${name.toUpperCase()}`, value] as const);
  for (const [name, value] of given) process.env[name] = value;
  try {
    const { words, events, junit } = readInputs("/folder");
    const always = ["--output", "human", "--color", "never", "--events-file", events, "--junit", junit];
    const from = words.findIndex((_, index) => always.every((word, at) => words[index + at] === word));
    assert.notEqual(from, -1, words.join(" "));
    return words.toSpliced(from, always.length);
  } finally {
    for (const [name] of given) delete process.env[name];
  }
}

test("each input becomes its option, and each verb its command", () => {
  const one = (name: string, value: string, ...words: string[]) => [{ verb: "install", [name]: value }, ["install", ...words]] as const;
  const value = (name: string, value: string) => one(name, value, `--${name}`, value);
  const rows = [
    [{ verb: "install" }, ["install"]],
    ...["bootstrap", "upgrade", "destroy"].map((verb) => [{ verb, instance: "prod" }, [verb, "prod"]] as const),
    value("bundle", "./with space"),
    value("kube-context", "a/b@c"),
    value("kubeconfig", "k.yaml:l.yaml"),
    value("state-dir", "state"),
    value("var-file", "vars.yaml"),
    value("on-busy", "warn"),
    value("stop-after", "10m"),
    value("stop-budget", "github"),
    value("max-run-time", "1h"),
    one("wait", "30m", "--wait=30m"),
    one("wait", "true", "--wait"),
    one("wait", "false"),
    one("detach", "true", "--detach"),
    one("dry-run", "true", "--dry-run"),
    one("dry-run", "false"),
    one("args", "--var\na=b c", "--var", "a=b c"),
    // They decide what is run and how it is waited for, and are no option of it.
    one("dcctl", "./dcctl"),
    one("version", "1.2.3"),
    one("stop-wait", "90s"),
  ] as const;
  for (const [inputs, words] of rows) assert.deepEqual(wordsOf(inputs), words, JSON.stringify(inputs));
  const seen = new Set(rows.flatMap(([inputs]) => Object.keys(inputs)));
  const others = ["events-file", "junit", "run"];
  assert.deepEqual(INPUTS.filter((name) => !seen.has(name)).toSorted(), others);
});

test("the files that are always written are where the inputs say, and a script is run by bash", () => {
  const folder = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  Object.assign(process.env, { INPUT_VERB: "exec", INPUT_RUN: "echo a\necho b", "INPUT_EVENTS-FILE": "/e.jsonl", INPUT_JUNIT: "/j.xml" });
  const { words } = readInputs(folder);
  for (const name of ["VERB", "RUN", "EVENTS-FILE", "JUNIT"]) delete process.env[`INPUT_${name}`];
  const script = join(folder, "script.sh");
  assert.deepEqual(words.slice(-11), ["--events-file", "/e.jsonl", "--junit", "/j.xml", "--", "bash", "--noprofile", "--norc", "-eo", "pipefail", script]);
  assert.equal(readFileSync(script, "utf8"), "echo a\necho b\n");
});

test("a run is known to be left to itself in whichever way dcctl was told to", () => {
  const left = (name: string, value: string) => {
    Object.assign(process.env, { INPUT_VERB: "install", [name]: value });
    try {
      return readInputs("/folder").detach;
    } finally {
      for (const given of ["INPUT_VERB", name]) delete process.env[given];
    }
  };
  for (const value of ["true", "1", "YES", "on"]) assert.ok(left("DCCTL_DETACH", value), value);
  for (const value of ["false", "0", "no", ""]) assert.ok(!left("DCCTL_DETACH", value), value);
  assert.ok(left("INPUT_DETACH", "true") && left("INPUT_ARGS", "--wait\n--detach"));
  assert.ok(!left("INPUT_DETACH", "false") && !left("INPUT_ARGS", "--wait"));
});

test("what is no name and what is no file is refused before anything is started", () => {
  assert.throws(() => wordsOf({ verb: "upgrade", instance: "--help" }), /instance is "--help", which is no name/);
  assert.throws(() => wordsOf({ verb: "install", "events-file": "/dev/null" }), /\/dev\/null, which is there and is no regular file/);
  assert.throws(() => wordsOf({ verb: "install", "events-file": tmpdir() }), /no regular file/);
});

test("the inputs that are known here are those of action.yml", () => {
  const action = parse(readFileSync("run/action.yml", "utf8"));
  assert.deepEqual(Object.keys(action.inputs).toSorted(), INPUTS.toSorted());
});

test("a variable of the job reaches what is started, also one that is named like the runner's, and the runner's own do not", async () => {
  const given = { STATE_BUCKET: "b", INPUT_FOLDER: "f", STATE_events: "e", INPUT_VERB: "v", "INPUT_KUBE-CONTEXT": "k" };
  Object.assign(process.env, given);
  const child = start("env", []);
  let text = "";
  child.stdout?.on("data", (piece) => (text += piece));
  await new Promise((resolve) => child.once("close", resolve));
  for (const name of Object.keys(given)) delete process.env[name];
  const seen = text.split("\n").filter((line) => /^(STATE|INPUT)_/.test(line));
  assert.deepEqual(seen.toSorted(), ["INPUT_FOLDER=f", "STATE_BUCKET=b"]);
});

test("of a program that is not there it is said how to have it", async () => {
  await assert.rejects(show(start("/no/such/dcctl", []), "log"), /there is no \/no\/such\/dcctl to run: install it.*actions\/setup/);
});
