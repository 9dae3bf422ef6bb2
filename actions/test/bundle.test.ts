// What a runner starts is what the sources say.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";

test("the bundles that are checked in are current", () => {
  const actions = resolve(__dirname, "../..");
  const folder = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  execFileSync(process.execPath, ["build.mjs", folder], { cwd: actions });
  for (const name of ["run/dist/main.js", "run/dist/post.js", "run/dist/licenses.txt", "setup/dist/main.js", "setup/dist/licenses.txt"]) {
    const same = readFileSync(join(actions, name)).equals(readFileSync(join(folder, name)));
    assert.ok(same, `actions/${name} is not what its sources make; run \`npm run build\` in actions/`);
  }
});
