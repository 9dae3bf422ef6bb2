// What went wrong, as annotations: at the file and line of the bundle that it is about, where that is in the workspace.
import * as core from "@actions/core";
import { existsSync, readFileSync } from "node:fs";
import { isAbsolute, join, relative, resolve } from "node:path";
import { parse } from "yaml";
import type { Diagnostic, Journal } from "./journal.ts";

/** GitHub shows ten of a kind for each step, and this much of a text. One of ten is the verdict's. */
const MOST = 9;
const LONGEST = 4000;

/** The place in the workspace that a diagnostic is about. Its file is as OpenTofu names it, from the root that it applies. */
export function place(diagnostic: Diagnostic, bundle: string, workspace: string): { file?: string; startLine?: number } {
  const [, name, line] = /^(.+):(\d+)$/.exec(diagnostic.source ?? "") ?? [];
  if (!name || !workspace) return {};
  const path = resolve(bundle, rootOf(diagnostic.step ?? "", bundle), name);
  const file = relative(workspace, path);
  if (file.startsWith("..") || isAbsolute(file) || !existsSync(path)) return {};
  return { file, startLine: Number(line) };
}

/** The root that a step applies, as the bundle names it. */
function rootOf(step: string, bundle: string): string {
  try {
    const known = parse(readFileSync(join(bundle, "bundle.yaml"), "utf8"));
    const root = step.includes("prerequisites") ? known?.prerequisites?.root : known?.instance?.infrastructure?.root;
    return typeof root === "string" ? root : "";
  } catch {
    // An archive, or a folder that is gone: nothing in it is of the workspace.
    return "";
  }
}

/** One annotation for each diagnostic, the errors first. */
export function annotate(journal: Journal): void {
  for (const severity of ["error", "warning"] as const) {
    const those = journal.diagnostics.filter((diagnostic) => diagnostic.severity === severity);
    for (const diagnostic of those.slice(0, MOST)) {
      const { address, summary, detail, origin } = diagnostic;
      const head = address ? `${address}: ${summary}` : summary;
      const at = place(diagnostic, journal.bundle, process.env["GITHUB_WORKSPACE"] ?? "");
      core[severity](shortened(detail ? `${head}\n${detail}` : head), { title: origin, ...at });
    }
  }
}

/** Why the run ended as it did, and what to do now, as one text. */
export function reason(journal: Journal): string {
  const verdict = journal.verdict;
  if (!verdict) return "";
  const { failure } = verdict;
  const lines = [journal.sentence, failure?.message ?? "", ...(failure?.causes ?? []), ...(verdict.next ?? [])];
  return shortened([...new Set(lines.filter(Boolean))].join("\n"));
}

function shortened(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
}
