// actions/setup against a release on this machine: the bundle as a runner starts it.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";

const ACTION = resolve(__dirname, "../../setup/dist/main.js");
const MACHINE = process.arch === "arm64" ? "aarch64" : "x86_64";
const NAME = `dcctl-${MACHINE}-linux.tar.gz`;
const OWN = /^version = "(.+)"$/m.exec(readFileSync(resolve(__dirname, "../../../Cargo.toml"), "utf8"))?.[1];
const PROGRAM = "#!/bin/sh\necho dcctl 1.2.3\n";

let server: Server;
const files = new Map<string, Buffer>();
let newest = "";
let released = true;

before(async () => {
  const folder = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  writeFileSync(join(folder, "dcctl"), PROGRAM, { mode: 0o755 });
  execFileSync("tar", ["--create", "--gzip", "--file", NAME, "dcctl"], { cwd: folder });
  files.set(NAME, readFileSync(join(folder, NAME)));
  server = createServer((ask, answer) => {
    const path = ask.url ?? "";
    if (path === "/acme/dcctl/releases/latest" && newest) {
      answer.writeHead(302, { location: newest }).end();
      return;
    }
    const [, version, name] = /^\/acme\/dcctl\/releases\/download\/v([^/]+)\/(.+)$/.exec(path) ?? [];
    const there = version === "1.2.3" || (version === OWN && released);
    const file = there ? files.get(name ?? "") : undefined;
    answer.writeHead(file ? 200 : 404).end(file);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
});

after(() => server.close());

function sums(of: Buffer): void {
  files.set("SHA256SUMS", Buffer.from(`${"0".repeat(64)}  other.tar.gz\n${createHash("sha256").update(of).digest("hex")}  ${NAME}\n`));
}

/** Runs the action, and gives back its exit status, what it said, and the folder that it put on PATH. */
async function setUp(environment: Record<string, string>): Promise<{ code: number | null; said: string; path: string }> {
  const folder = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  for (const name of ["path", "outputs"]) writeFileSync(join(folder, name), "");
  const { port } = server.address() as AddressInfo;
  const child = spawn(process.execPath, [ACTION], {
    env: {
      PATH: process.env["PATH"] ?? "", RUNNER_TEMP: join(folder, "temp"), RUNNER_TOOL_CACHE: join(folder, "tools"),
      GITHUB_PATH: join(folder, "path"), GITHUB_OUTPUT: join(folder, "outputs"), GITHUB_SERVER_URL: `http://127.0.0.1:${port}`,
      GITHUB_ACTION_REPOSITORY: "acme/dcctl", ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  mkdirSync(join(folder, "temp"));
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (said += piece));
  const code = await new Promise<number | null>((done) => child.once("close", done));
  return { code, said, path: readFileSync(join(folder, "path"), "utf8").trim() };
}

const right = (): string => createHash("sha256").update(files.get(NAME) ?? "").digest("hex");

test("a release is put on PATH when its archive is what its checksums say", async () => {
  sums(files.get(NAME) ?? Buffer.alloc(0));
  for (const environment of [{ INPUT_VERSION: "1.2.3" }, { GITHUB_ACTION_REF: "v1" }, { INPUT_VERSION: "v1.2.3", INPUT_CHECKSUM: right() }]) {
    const { code, said, path } = await setUp(environment);
    assert.equal(code, 0, said);
    assert.equal(readFileSync(join(path, "dcctl"), "utf8"), PROGRAM);
  }
});

test("the latest is the one that the list of releases leads to", async () => {
  sums(files.get(NAME) ?? Buffer.alloc(0));
  newest = "/acme/dcctl/releases/tag/v1.2.3";
  const { code, said } = await setUp({ INPUT_VERSION: "latest" });
  newest = "";
  assert.equal(code, 0, said);
  assert.match(said, /dcctl 1\.2\.3 is /);
});

test("an archive that is not what its checksums say is not used", async () => {
  sums(Buffer.from("another"));
  const { code, said, path } = await setUp({ INPUT_VERSION: "1.2.3" });
  assert.deepEqual([code, path], [1, ""], said);
  assert.match(said, /::error::dcctl-.+ has the SHA-256 [0-9a-f]{64} and not [0-9a-f]{64}: it is not used/);
});

test("an archive that the checksums do not name, or that is not the one asked for, is not used", async () => {
  files.set("SHA256SUMS", Buffer.from(`${"0".repeat(64)}  other.tar.gz\n`));
  assert.match((await setUp({ INPUT_VERSION: "1.2.3" })).said, /does not name dcctl-/);
  sums(files.get(NAME) ?? Buffer.alloc(0));
  const { code, said } = await setUp({ INPUT_VERSION: "1.2.3", INPUT_CHECKSUM: "f".repeat(64) });
  assert.equal(code, 1, said);
});

test("without a release it is built from the source that the action lies in", async () => {
  const folder = mkdtempSync(join(tmpdir(), "dcctl-test-"));
  const cargo = join(folder, "cargo");
  writeFileSync(cargo, `#!/bin/sh\ntest -f Cargo.toml && test -d actions || exit 1\nfor target; do :; done\nmkdir -p "$target/release"\nprintf '%s\\n' "$*" > "${folder}/words"\nprintf '#!/bin/sh\\necho dcctl 9.9.9\\n' > "$target/release/dcctl"\nchmod +x "$target/release/dcctl"\n`);
  chmodSync(cargo, 0o755);
  released = false;
  for (const version of ["latest", ""]) {
    const { code, said } = await setUp({ INPUT_VERSION: version, PATH: `${folder}:${process.env["PATH"]}` });
    assert.equal(code, 0, said);
    assert.match(said, /there is no such release yet/);
    assert.match(said, /dcctl 9\.9\.9 is /);
  }
  released = true;
  assert.match(readFileSync(join(folder, "words"), "utf8"), /^build --release --locked --bin dcctl --target-dir /);
});

test("what is no version, and a version of an action that is used from a folder, is said to be that", async () => {
  assert.match((await setUp({ INPUT_VERSION: "newest" })).said, /"newest" is not a version; "1\.2\.3", "latest" and "source" are/);
  const local = await setUp({ INPUT_VERSION: "1.2.3", GITHUB_ACTION_REPOSITORY: "" });
  assert.match(local.said, /an action that is used from a folder has no releases; "source" builds it/);
});
