// The entry point of `post`.
import * as core from "@actions/core";
import { finish } from "./finish.ts";

finish().catch((error: unknown) => {
  // The run is what it is: a job does not fail because it could not be told.
  core.warning(error instanceof Error ? error.message : String(error));
});
