// `post` of the action: it sees a cancelled run to its end, as far as its time goes, and writes the summary.
//
// `main` may have been killed without a word (act does that at once, GitHub after ten seconds). Then the run is asked to stop
// from here. It is one request, however often and by whomever it is made. The lock is dcctl's alone: nothing here touches it.
import * as core from "@actions/core";
import { annotate, reason } from "./annotate.ts";
import { show, start } from "./child.ts";
import { milliseconds } from "./inputs.ts";
import { isOver, type Journal, readBegun, readRun } from "./journal.ts";
import { guarded } from "./log.ts";
import { type End, STATE } from "./state.ts";
import { summary } from "./summary.ts";

/** Waits, and tells. */
export async function finish(): Promise<void> {
  const events = core.getState(STATE.events);
  if (!events) return;
  const end = core.getState(STATE.end) as End;
  let journal = await readRun(events);
  let remark = "";
  if (end === "left") {
    const seen = journal.verdict ? "over" : await ask(journal, Date.now());
    journal = await readRun(events);
    if (seen !== "over") remark = seen === "cut off" ? tell(journal, seen) : "The run goes on by itself.";
  } else if (end !== "over") {
    // `main` did not see the end. The run may have come to it since.
    if (!journal.run) journal = await readBegun(events);
    if (!journal.run) {
      core.info("no run had begun: there is nothing to wait for");
      return;
    }
    const seen = journal.verdict ? "over" : await seeToItsEnd(journal, end, lastMoment());
    journal = await readRun(events);
    remark = tell(journal, seen);
  }
  if (!journal.run) return;
  await core.summary.addRaw(summary(journal, remark), true).write();
}

/** From a cancel on GitHub gives a job five minutes. This much of them is used, so that the summary is still written. */
const OF_A_CANCEL = 270_000;

/** Until when the run is waited for: as long as was asked for, and not past what is left since the cancel that `main` heard. */
function lastMoment(): number {
  const asked = Number(core.getState(STATE.asked) || Date.now());
  return Math.min(Date.now() + milliseconds(core.getInput("stop-wait") || "240s"), asked + OF_A_CANCEL);
}

/** What is known of a run after the wait for it: it came to its end, is cut off without a verdict, or goes on. */
type Seen = "over" | "cut off" | "at work";

/** What `dcctl runs wait` ends with when the time is up and the run is not. */
const GOES_ON = 30;

/** Asks for the stop where nobody did, and shows the run until it ends or the time is over. To stop watching stops nothing. */
async function seeToItsEnd(journal: Journal, end: End, until: number): Promise<Seen> {
  const program = core.getState(STATE.program);
  const run = journal.folder || journal.run;
  if (end !== "asked") {
    core.info("the step of this run ended without a word: asking the run to stop");
    const { code } = await show(start(program, ["runs", "stop", run]), "log");
    if (code !== 0) core.warning(`dcctl runs stop ended with ${code}; a run stops by itself when its step is gone`);
  }
  const how = core.getState(STATE.verb) === "exec" ? "command" : "log";
  const viewer = start(program, ["runs", "attach", run, "--from-now", "--output", "human", "--color", "never"]);
  const limit = setTimeout(() => viewer.kill("SIGINT"), left(until));
  await guarded(how, () => show(viewer, how));
  clearTimeout(limit);
  // A run that cannot be watched is waited for all the same.
  return ask(journal, until);
}

/** Waits until then for the end. Only dcctl can tell a run that is gone from one at work. */
async function ask(journal: Journal, until: number): Promise<Seen> {
  const seconds = Math.max(1, Math.ceil(left(until) / 1000));
  const words = ["runs", "wait", journal.folder || journal.run, "--timeout", `${seconds}s`];
  const { code } = await show(start(core.getState(STATE.program), words), "log");
  if (isOver(journal.folder)) return "over";
  return code === GOES_ON || code === null ? "at work" : "cut off";
}

function left(until: number): number {
  return Math.max(0, until - Date.now());
}

/** Says how it ended, or that it has not; gives back what the summary says of that. */
function tell(journal: Journal, seen: Seen): string {
  if (journal.verdict) {
    annotate(journal);
    const say = journal.verdict.exit_code === 10 || journal.verdict.exit_code === 0 ? core.notice : core.error;
    say(reason(journal), { title: "dcctl" });
    return "";
  }
  if (seen === "cut off") {
    annotate(journal);
    const holds = journal.claimed ? " It held the lock, which may stay: `dcctl lock status` shows it." : "";
    const remark = `The run was cut off: it has no verdict, and its processes are gone.${holds} On this machine, dcctl runs show ${journal.run} tells what it had begun.`;
    core.error(remark, { title: "dcctl" });
    return remark;
  }
  const { RUNNER_ENVIRONMENT: environment, KUBERNETES_SERVICE_HOST: cluster } = process.env;
  const goes = environment === "github-hosted" || cluster;
  const then = goes
    ? "This machine ends with the job: what the run has not finished by then is cut off, and the lock stays."
    : `It goes on without this job and gives the lock back at its end; on this machine, dcctl runs attach ${journal.run} shows it.`;
  const remark = `The run has not ended in the time that this job had for it. ${then}`;
  core.warning(remark, { title: "dcctl" });
  return remark;
}
