// Starting dcctl beside this process: out of its process group, so that what is sent to the group of a step reaches dcctl once.
import { type ChildProcess, spawn } from "node:child_process";
import { INPUTS } from "./inputs.ts";
import { pass, showGroups } from "./log.ts";
import { STATE } from "./state.ts";

/** How a process ended. */
export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** Starts the program; its output is read by us, so that it is not torn when we end. */
export function start(program: string, words: string[]): ChildProcess {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !isOurs(name)));
  return spawn(program, words, { detached: true, stdio: ["ignore", "pipe", "pipe"], env });
}

/** The variables through which the runner speaks to this action are no business of what dcctl starts; a job's own are. */
function isOurs(name: string): boolean {
  const [, kind, rest = ""] = /^(INPUT|STATE)_(.*)$/.exec(name) ?? [];
  return kind === "STATE" ? rest in STATE : kind === "INPUT" && INPUTS.includes(rest.toLowerCase());
}

/** Shows what it says until its end: dcctl's own log in groups, the output of a user's command as it is. */
export async function show(child: ChildProcess, how: "log" | "command"): Promise<Ended> {
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", (error: NodeJS.ErrnoException) => reject(error.code === "ENOENT" ? missing(child) : error));
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
  const { stdout, stderr } = child;
  const shown = stdout && stderr ? [how === "log" ? showGroups(stdout) : pass(stdout, process.stdout), pass(stderr, process.stdout)] : [];
  // One that could not be started has an error, and outputs that are of no use.
  const [end] = await Promise.all([ended, ...shown.map((stream) => stream.catch(() => {}))]);
  return end;
}

/** What to do about a program that is not there. */
function missing(child: ChildProcess): Error {
  return new Error(
    `there is no ${child.spawnfile} to run: install it before this step with the action beside this one, actions/setup, or with the input "version", or name it in the input "dcctl"`,
  );
}
