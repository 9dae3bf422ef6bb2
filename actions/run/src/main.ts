// The entry point of `main`.
import * as core from "@actions/core";
import { run } from "./run.ts";
import { STATE } from "./state.ts";

run().catch((error: unknown) => {
  core.setOutput("outcome", "failed");
  core.saveState(STATE.end, "over");
  core.setFailed(error instanceof Error ? error.message : String(error));
});
