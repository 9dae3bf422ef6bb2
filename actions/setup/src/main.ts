// The entry point of `actions/setup`: a dcctl on PATH for the steps that follow.
import * as core from "@actions/core";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { install } from "./install.ts";

async function main(): Promise<void> {
  const folder = await install(core.getInput("version"), core.getInput("checksum"));
  const path = join(folder, "dcctl");
  const version = execFileSync(path, ["--version"], { encoding: "utf8" }).trim();
  core.addPath(folder);
  core.setOutput("path", path);
  core.setOutput("version", version.split(" ").pop() ?? "");
  core.info(`${version} is ${path}`);
}

main().catch((error: unknown) => core.setFailed(error instanceof Error ? error.message : String(error)));
