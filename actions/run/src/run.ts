// `main` of the action: one run of dcctl, its log, its outputs. On a cancel it asks for one stop and is gone.
//
// GitHub sends SIGINT, 7.5 s later SIGTERM and 2.5 s later SIGKILL to this process alone, and gives the whole job less than five
// minutes. Every second that this process stays is one that `post` does not have.
import * as core from "@actions/core";
import { closeSync, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { install } from "../../setup/src/install.ts";
import { annotate, reason } from "./annotate.ts";
import { show, start } from "./child.ts";
import { readInputs } from "./inputs.ts";
import { empty, type Journal, readBegun, readRun, take } from "./journal.ts";
import { guarded } from "./log.ts";
import { mask } from "./mask.ts";
import { STATE } from "./state.ts";

/** Runs dcctl. */
export async function run(): Promise<void> {
  const folder = mkdtempSync(join(process.env["RUNNER_TEMP"] || tmpdir(), "dcctl-"));
  const inputs = readInputs(folder);
  const program = await programToRun();
  mask(process.env);
  // What an earlier step left there is not this run's.
  rmSync(inputs.events, { force: true });
  core.saveState(STATE.events, inputs.events);
  core.saveState(STATE.program, program);
  core.saveState(STATE.verb, inputs.verb);
  core.setOutput("events", inputs.events);
  core.setOutput("junit", inputs.junit);
  core.setOutput("outcome", "running");

  const how = inputs.verb === "exec" ? "command" : "log";
  const { code, signal } = await guarded(how, (foreign) => {
    const child = start(program, inputs.words);
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        child.kill("SIGTERM");
        foreign?.end();
        leave(inputs.events, signal);
      });
    }
    return show(child, how);
  });
  if (inputs.detach && code === 0) {
    const journal = await readBegun(inputs.events);
    if (!journal.run) return conclude(journal, `dcctl ended with ${code}`, code);
    core.setOutput("run-id", journal.run);
    core.saveState(STATE.end, "left");
    core.info(`run ${journal.run} goes on by itself; on this machine, dcctl runs wait ${journal.run} waits for it`);
    return;
  }
  const journal = await readRun(inputs.events);
  conclude(journal, signal ? `dcctl was ended by ${signal}` : `dcctl ended with ${code}`, code);
}

/** The program: what `dcctl` names, else what `version` says, else the one on PATH. */
async function programToRun(): Promise<string> {
  const version = core.getInput("version");
  return core.getInput("dcctl") || (version ? join(await install(version, ""), "dcctl") : "dcctl");
}

/** Outputs and annotations of a run that is over. */
function conclude(journal: Journal, ended: string, code: number | null): void {
  const verdict = journal.verdict;
  // A front that was killed leaves a run that stops by itself: that is for `post` to see.
  core.saveState(STATE.end, verdict || code !== null ? "over" : "");
  core.setOutput("run-id", journal.run);
  core.setOutput("outcome", verdict?.outcome ?? (code === null ? "stopping" : "failed"));
  core.setOutput("exit-code", verdict?.exit_code ?? code ?? "");
  core.setOutput("failure-code", verdict?.failure?.code ?? "");
  core.setOutput("lock", verdict?.lock ?? "");
  core.setOutput("holder", verdict?.holder ?? "");
  annotate(journal);
  if (code !== 0) core.setFailed(reason(journal) || ended);
  else if (!journal.run) core.setFailed(`${ended} and has no verdict: no run was seen, so nothing was done; look at "args"`);
  else if (!verdict) core.setFailed(`${ended}, and the events of its run lack the verdict; look at the log above`);
}

/** Says what can be said at once, and ends. */
function leave(events: string, signal: string): never {
  core.saveState(STATE.end, "asked");
  core.saveState(STATE.asked, Date.now());
  core.setOutput("outcome", "stopping");
  core.setOutput("run-id", runOf(events));
  core.warning(`${signal}: dcctl was asked to stop. It finishes what is in flight, and this action's last step waits for it.`);
  process.exit(1);
}

/** The id in the first line. */
function runOf(events: string): string {
  const journal = empty();
  try {
    const file = openSync(events, "r");
    const piece = Buffer.alloc(16_000);
    const bytes = readSync(file, piece);
    closeSync(file);
    take(journal, piece.toString("utf8", 0, bytes).split("\n")[0] ?? "");
  } catch {
    // The run had not begun.
  }
  return journal.run;
}
