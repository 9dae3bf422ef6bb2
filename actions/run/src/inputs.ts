// The inputs of the action, and the command line that they make.
import * as core from "@actions/core";
import { lstatSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

/** Inputs that are options of dcctl with a value, under the same name. */
const VALUES = [
  "bundle", "kube-context", "kubeconfig", "state-dir", "var-file", "on-busy", "stop-after", "stop-budget", "max-run-time",
];
/** All that `action.yml` has. */
export const INPUTS = [
  ...VALUES, "verb", "instance", "wait", "detach", "dry-run", "run", "events-file", "junit", "args", "dcctl", "version", "stop-wait",
];
const VERBS = ["install", "bootstrap", "upgrade", "destroy", "exec"];

/** What the run was asked to be. */
export interface Inputs {
  verb: string;
  words: string[];
  detach: boolean;
  events: string;
  junit: string;
}

/** Reads them. What is against them is said before anything is started; what dcctl itself checks is left to it. */
export function readInputs(folder: string): Inputs {
  const verb = core.getInput("verb", { required: true });
  if (!VERBS.includes(verb)) throw new Error(`verb is "${verb}"; there are ${VERBS.join(", ")}`);
  const script = core.getInput("run");
  if ((verb === "exec") !== (script !== "")) {
    throw new Error('"run" is the script of the verb exec, which needs one; no other verb has one');
  }
  // It is used by the last half alone, which is too late to say that it is wrong.
  milliseconds(core.getInput("stop-wait") || "240s");
  const words = [verb];
  const instance = core.getInput("instance");
  if (instance.startsWith("-")) throw new Error(`instance is "${instance}", which is no name but an option; options go into "args"`);
  if (instance) words.push(instance);
  for (const name of VALUES) {
    const value = core.getInput(name);
    if (value) words.push(`--${name}`, value);
  }
  const wait = core.getInput("wait");
  if (wait && wait !== "false") words.push(wait === "true" ? "--wait" : `--wait=${wait}`);
  if (yes("detach")) words.push("--detach");
  if (yes("dry-run")) words.push("--dry-run");
  words.push("--output", "human", "--color", "never");
  const events = resolve(core.getInput("events-file") || join(folder, "events.jsonl"));
  // It is read here, too: a pipe would be somebody else's, and a folder is none.
  const there = lstatSync(events, { throwIfNoEntry: false });
  if (there && !there.isFile()) throw new Error(`events-file is ${events}, which is there and is no regular file`);
  const junit = resolve(core.getInput("junit") || join(folder, "junit.xml"));
  words.push("--events-file", events, "--junit", junit);
  words.push(...core.getMultilineInput("args"));
  // Whichever way dcctl was told: a run that is left to itself has no verdict yet when its step ends.
  const detach = words.includes("--detach") || /^(y|yes|t|true|on|1)$/i.test(process.env["DCCTL_DETACH"] ?? "");
  if (verb === "exec") {
    const path = join(folder, "script.sh");
    writeFileSync(path, `${script}\n`, { mode: 0o600 });
    words.push("--", "bash", "--noprofile", "--norc", "-eo", "pipefail", path);
  }
  return { verb, words, detach, events, junit };
}

function yes(name: string): boolean {
  return core.getInput(name) !== "" && core.getBooleanInput(name);
}

/** `4m30s`, `240s`, `90` (seconds) in milliseconds. */
export function milliseconds(text: string): number {
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const [, hours, minutes, seconds] = /^(?=.)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text) ?? [];
  if (!hours && !minutes && !seconds) throw new Error(`"${text}" is not a duration; "240s" and "4m30s" are`);
  return ((Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60 + Number(seconds ?? 0)) * 1000;
}
