// The job summary: verdict, what to do now, steps, resources. Whoever opens the job sees it first.
//
// It is HTML throughout, so that nothing in it is read as Markdown, and every text is escaped.
import type { Failed, Journal, Step } from "./journal.ts";

/** GitHub drops a summary of more than 1 MiB. */
const LARGEST = 1024 * 1024 - 4096;
const LONGEST_TEXT = 2000;

const SIGNS: Record<string, string> = { done: "✅", nothing: "➖", stopped: "🛑", failed: "❌" };
const OUTCOMES: Record<string, string> = {
  succeeded: "✅", failed: "❌", refused: "⛔", blocked: "🔒", stopped: "🛑", forced: "❌",
};
const LOCKS: Record<string, string> = {
  released: "given back",
  never_taken: "never taken",
  not_held: "not held: the run went on without it",
  left: "left behind: a person has to reclaim it with `dcctl instances reclaim`",
  lost: "lost in the middle of the run",
  unknown: "not known",
};

/** The summary of a run, as far as it has come; `remark` is said above everything when there is one. */
export function summary(journal: Journal, remark = ""): string {
  // Resources are what there may be very many of.
  for (const rows of [500, 50, 0]) {
    const text = page(journal, remark, rows);
    if (Buffer.byteLength(text) <= LARGEST) return text;
  }
  return heading(journal, remark);
}

function page(journal: Journal, remark: string, rows: number): string {
  return [heading(journal, remark), ways(journal), steps(journal.steps), resources(journal, rows)].filter(Boolean).join("\n");
}

function heading(journal: Journal, remark: string): string {
  const verdict = journal.verdict;
  const sign = verdict ? (OUTCOMES[verdict.outcome] ?? "•") : "⏳";
  const title = verdict ? journal.sentence : `${journal.subject || "dcctl"}: no verdict yet`;
  const facts = [
    ["Cluster", journal.cluster],
    ["Lock", lockState(journal)],
    ["Exit code", verdict ? [verdict.exit_code, verdict.failure?.code].filter((part) => part !== undefined).join(", ") : ""],
    ["Stop", journal.stop],
    ["Run", journal.run],
    ["Run directory", journal.folder],
  ].filter(([, value]) => value);
  const table = facts.map(([name, value]) => `<tr><td>${name}</td><td>${escape(String(value))}</td></tr>`).join("\n");
  const remarked = remark ? `<p><strong>${escape(remark)}</strong></p>\n` : "";
  return `<h3>${sign} ${escape(title)}</h3>\n${remarked}<table>\n${table}\n</table>\n`;
}

function lockState(journal: Journal): string {
  const verdict = journal.verdict;
  if (!verdict) return journal.claimed ? `held by the run, as ${journal.holder}` : "";
  const state = LOCKS[verdict.lock] ?? verdict.lock;
  return verdict.holder ? `${state}; holder: ${verdict.holder}` : state;
}

/** Why, and how to go on. */
function ways(journal: Journal): string {
  const verdict = journal.verdict;
  if (!verdict) return "";
  const parts = [];
  if (verdict.failure) parts.push(why(verdict.failure));
  if (verdict.unfinished?.length) parts.push(list("Begun, and not seen to complete", verdict.unfinished.slice(0, 50)));
  const survived = (verdict.survived ?? []).slice(0, 50).map(({ program, pid, name }) => `process ${pid} (${name}) of ${program}`);
  if (survived.length) parts.push(list("Could not be ended, and may still be at work", survived));
  const kept = (verdict.kept ?? []).filter(({ path }) => path !== journal.folder);
  if (kept.length) parts.push(list("Look at", kept.map(({ what, path }) => `${path}: ${what}`)));
  const next = verdict.next?.length ? verdict.next : (verdict.failure?.hints ?? []);
  if (next.length) parts.push(list("What to do now", next));
  return parts.join("\n");
}

function why(failure: Failed): string {
  const causes = (failure.causes ?? []).slice(0, 20).map((cause) => `<li>${escape(cause)}</li>`).join("");
  return `<p><strong>Why:</strong> ${escape(failure.message)}</p>${causes ? `\n<ul>${causes}</ul>` : ""}\n`;
}

function list(title: string, texts: string[]): string {
  return `<p><strong>${title}</strong></p>\n<ul>${texts.map((text) => `<li>${escape(text)}</li>`).join("")}</ul>\n`;
}

function steps(known: Step[]): string {
  if (known.length === 0) return "";
  const rows = known.map((step, index) => {
    const sign = step.outcome ? (SIGNS[step.outcome] ?? "•") : step.began ? "⏳" : "";
    const said = step.failure?.message ?? step.note ?? (step.began ? "" : "not begun");
    const took = step.milliseconds === undefined ? "" : duration(step.milliseconds);
    return `<tr><td>${index + 1}</td><td>${escape(step.title)}</td><td>${sign}</td><td>${escape(said)}</td><td>${took}</td></tr>`;
  });
  return `<table>\n<tr><th></th><th>Step</th><th></th><th>What it did</th><th>Time</th></tr>\n${rows.join("\n")}\n</table>\n`;
}

function resources(journal: Journal, most: number): string {
  if (journal.changed === 0) return "";
  const shown = journal.resources.slice(0, most).map(({ address, action, failed }) => {
    return `<tr><td>${escape(address)}</td><td>${escape(failed ? `${action}: failed` : action)}</td></tr>`;
  });
  const more = journal.changed - shown.length;
  if (more > 0) shown.push(`<tr><td>${shown.length ? `and ${more} more` : `${more}, listed in the events`}</td><td></td></tr>`);
  return `<details><summary>Resources changed: ${journal.changed}</summary>\n<table>\n${shown.join("\n")}\n</table>\n</details>\n`;
}

/** `1m21s`, `0.4s`. */
export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  if (seconds < 60) return `${Math.round(seconds)}s`;
  return `${Math.floor(seconds / 60)}m${Math.round(seconds % 60)}s`;
}

/** Text within HTML. A line feed must not end the HTML block, and no name in it must call a person. */
function escape(text: string): string {
  const short = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)} …` : text;
  return short
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;")
    .replaceAll("@", "&#64;").replace(/\r?\n/g, "<br>");
}
