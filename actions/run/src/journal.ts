// What a run has said so far, read from its events. `docs/reference/events.md` describes the lines.
//
// A run may have printed a million lines. They are passed over while the file is read; what is kept of the rest is bounded.
import { closeSync, createReadStream, existsSync, fstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as after } from "node:timers/promises";

/** Why something went wrong. */
export interface Failed {
  code: string;
  message: string;
  causes?: string[];
  hints?: string[];
}

/** One step of the plan and how it ended; one that never began has no outcome. */
export interface Step {
  id: string;
  title: string;
  outcome?: string;
  began?: boolean;
  note?: string;
  failure?: Failed;
  milliseconds?: number;
}

/** A change of a resource that was seen to end. */
export interface Resource {
  address: string;
  action: string;
  failed: boolean;
}

/** What a tool or dcctl itself says is wrong. */
export interface Diagnostic {
  severity: string;
  origin: string;
  summary: string;
  detail?: string;
  address?: string;
  source?: string;
  /** The step that it belongs to. */
  step?: string;
}

/** The last event. */
export interface Verdict {
  subject: string;
  outcome: string;
  exit_code: number;
  failure?: Failed;
  lock: string;
  holder?: string;
  unfinished?: string[];
  survived?: { program: string; pid: number; name: string }[];
  kept?: { what: string; path: string }[];
  next?: string[];
  duration_ms: number;
}

/** What is known of a run. */
export interface Journal {
  run: string;
  folder: string;
  subject: string;
  bundle: string;
  cluster: string;
  holder: string;
  steps: Step[];
  resources: Resource[];
  /** All that ended, also those that are not kept. */
  changed: number;
  diagnostics: Diagnostic[];
  stop: string;
  claimed: boolean;
  sentence: string;
  verdict?: Verdict;
}

const LONGEST_LINE = 16_000;
const MOST_RESOURCES = 1000;
const MOST_DIAGNOSTICS = 50;

/** A journal in which nothing was said yet. */
export function empty(): Journal {
  return {
    run: "", folder: "", subject: "", bundle: "", cluster: "", holder: "", steps: [], resources: [], changed: 0,
    diagnostics: [], stop: "", claimed: false, sentence: "",
  };
}

/** Takes in one line; one that was cut off, or is of a version that we do not know, says nothing. */
export function take(journal: Journal, line: string): void {
  if (line.includes('"type":"process.output"')) return;
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    return;
  }
  if (event?.v !== 1 || typeof event.data !== "object") return;
  const data = event.data;
  switch (event.type) {
    case "run.started":
      journal.run = event.run;
      journal.folder = data.run_dir ?? "";
      journal.subject = [data.command, data.instance ?? data.program].filter(Boolean).join(" ");
      journal.bundle = data.bundle?.path ?? "";
      journal.cluster = data.kube_context ?? data.lock_dir ?? "";
      journal.holder = data.holder ?? "";
      break;
    case "run.planned":
      journal.steps = data.steps.map((step: Step) => ({ id: step.id, title: step.title }));
      break;
    case "step.started":
      Object.assign(step(journal, data), { began: true });
      break;
    case "step.finished": {
      const { outcome, note, failure, duration_ms } = data;
      Object.assign(step(journal, data), { outcome, note, failure, milliseconds: duration_ms });
      break;
    }
    case "resource.completed":
    case "resource.failed":
      journal.changed += 1;
      if (journal.resources.length < MOST_RESOURCES) {
        journal.resources.push({ address: data.address, action: data.action, failed: event.type === "resource.failed" });
      }
      break;
    case "diagnostic":
      if (journal.diagnostics.length < MOST_DIAGNOSTICS) journal.diagnostics.push({ ...data, step: event.step });
      break;
    case "lock.claimed":
      journal.claimed = true;
      break;
    case "stop.requested":
      journal.stop = event.msg;
      break;
    case "run.finished":
      journal.verdict = data;
      journal.sentence = event.msg;
      break;
  }
}

function step(journal: Journal, data: Step): Step {
  let found = journal.steps.find((known) => known.id === data.id);
  if (!found) {
    found = { id: data.id, title: data.title };
    journal.steps.push(found);
  }
  return found;
}

/** Reads the events in a file; nothing of a file that is not there. */
export async function read(path: string): Promise<Journal> {
  const journal = empty();
  if (!existsSync(path)) return journal;
  const lines = createInterface({ input: createReadStream(path, "utf8"), crlfDelay: Infinity });
  for await (const line of lines) take(journal, line);
  return journal;
}

/** The same, and where they do not come to an end, what the run's own directory has: it is written first. */
export async function readRun(events: string): Promise<Journal> {
  const journal = await read(events);
  if (journal.verdict || !journal.folder) return journal;
  const own = await read(join(journal.folder, "events.jsonl"));
  return own.run ? own : journal;
}

/** For so many milliseconds a run may take to say its first word. */
const FIRST_WORD = 10_000;

/** The same once the run has said its first word, which is waited for. */
export async function readBegun(events: string, limit = FIRST_WORD): Promise<Journal> {
  const until = Date.now() + limit;
  let journal = await readRun(events);
  while (!journal.run && Date.now() < until) {
    await after(100);
    journal = await readRun(events);
  }
  return journal;
}

/** Whether the last line of the journal in a run directory is the verdict; also when there is none that could ever be. */
export function isOver(folder: string): boolean {
  let file;
  try {
    file = openSync(join(folder, "events.jsonl"), "r");
  } catch {
    return true;
  }
  const piece = Buffer.alloc(LONGEST_LINE);
  const bytes = readSync(file, piece, 0, piece.length, Math.max(0, fstatSync(file).size - piece.length));
  closeSync(file);
  return piece.toString("utf8", 0, bytes).includes('"type":"run.finished"');
}
