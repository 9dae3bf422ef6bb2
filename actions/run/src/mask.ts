// What the runner has to hide in this job's log. dcctl hides its own secrets; a command of the user does not.
import * as core from "@actions/core";
import { readFileSync } from "node:fs";

const SHORTEST = 6;
const KEYS = /^[\s-]*(?:token|password|client-key-data|id-token|refresh-token|access-token)\s*:\s*["']?([^\s"']+)/;

/** The values that were given as variables of the bundle, and the credentials in a kubeconfig. */
export function secretsOf(environment: NodeJS.ProcessEnv, kubeconfig: string): string[] {
  const given = Object.entries(environment).filter(([name]) => isVariable(name)).map(([, value]) => value ?? "");
  // Of one with several lines the runner hides each line.
  const lines = given.flatMap((value) => value.split(/\r?\n/)).map((line) => line.trim());
  const credentials = kubeconfig.split("\n").flatMap((line) => KEYS.exec(line)?.[1] ?? []);
  // A number or a switch is no secret, and to hide it would tear holes into every log.
  const plain = /^(?:[\d.]+|true|false|yes|no)$/;
  return [...new Set([...lines, ...credentials])].filter((value) => value.length >= SHORTEST && !plain.test(value));
}

/** `DCCTL_VAR_FILE` is the path of a file. */
function isVariable(name: string): boolean {
  return name.startsWith("DCCTL_VAR_") && name !== "DCCTL_VAR_FILE";
}

/** Has all of them hidden. */
export function mask(environment: NodeJS.ProcessEnv): void {
  const paths = core.getInput("kubeconfig") || environment["KUBECONFIG"] || `${environment["HOME"]}/.kube/config`;
  const texts = paths.split(":").map((path) => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return "";
    }
  });
  for (const secret of secretsOf(environment, texts.join("\n"))) core.setSecret(secret);
}
