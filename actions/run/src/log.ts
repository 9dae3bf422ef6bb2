// The log of a run as the job's log: each step is a group that opens, and what nobody of us wrote can command nothing.
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

const HEADING = /^ ?\d+\/\d+ {2}\S/;
const CONTENT = " ".repeat(5);

/** Turns the lines of dcctl's readable log into groups: a heading opens one, what is not indented as content ends it. */
export class Groups {
  #open = false;
  readonly #write: (text: string) => void;

  constructor(write: (text: string) => void) {
    this.#write = write;
  }

  /** Shows a line. */
  line(text: string): void {
    if (HEADING.test(text)) {
      this.end();
      this.#write(`::group::${text.trim()}\n`);
      this.#open = true;
      return;
    }
    if (text !== "" && !text.startsWith(CONTENT)) this.end();
    this.#write(`${text}\n`);
  }

  /** Ends the group that is open. */
  end(): void {
    if (this.#open) this.#write("::endgroup::\n");
    this.#open = false;
  }
}

/** Shows the lines of dcctl's own log, in groups. Resolves at the end of the stream. */
export async function showGroups(stream: Readable): Promise<void> {
  const groups = new Groups((text) => process.stdout.write(text));
  for await (const line of createInterface({ input: stream, crlfDelay: Infinity })) groups.line(line);
  groups.end();
}

/** Shows what a command of the user prints. Between the two lines around it the runner obeys no command. */
export class Foreign {
  readonly #token = `dcctl-${randomBytes(16).toString("hex")}`;

  /** From here on nothing is obeyed. */
  begin(): void {
    process.stdout.write(`::stop-commands::${this.#token}\n`);
  }

  /** From here on ours are again. */
  end(): void {
    process.stdout.write(`\n::${this.#token}::\n`);
  }
}

/** Does something beside which a command of the user may print; what becomes of it, the runner obeys again afterwards. */
export async function guarded<T>(how: "log" | "command", deed: (foreign: Foreign | undefined) => Promise<T>): Promise<T> {
  if (how === "log") return deed(undefined);
  const foreign = new Foreign();
  foreign.begin();
  try {
    return await deed(foreign);
  } finally {
    foreign.end();
  }
}

/** Passes a stream on as it is. Resolves at its end. */
export async function pass(stream: Readable, to: NodeJS.WritableStream): Promise<void> {
  for await (const piece of stream) to.write(piece);
}
