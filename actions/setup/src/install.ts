// Where a dcctl comes from: the archive of a release, held against its checksums, or the source that this action lies in.
import * as core from "@actions/core";
import * as cache from "@actions/tool-cache";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const TOOL = "dcctl";
const MACHINES: Record<string, string> = { x64: "x86_64", arm64: "aarch64" };
const VERSION = /^v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)$/;

/** The repository that this action lies in, as the runner has unpacked it. */
const SOURCE = resolve(__dirname, "../../..");

/**
 * Makes this version ready and gives back the folder that the program is in.
 *
 * `version` is a version, `latest`, `source`, or empty: then it is that of the source which the action lies in, so that action
 * and program belong together whatever the tag is called. `checksum`, when there is one, is what the archive has to have
 * whatever the release says.
 */
export async function install(version: string, checksum: string): Promise<string> {
  const repository = process.env["GITHUB_ACTION_REPOSITORY"] ?? "";
  if (version === "source" || (!version && !repository)) return fromSource();
  if (!repository) {
    throw new Error(`version ${version} is not to be had: an action that is used from a folder has no releases; "source" builds it`);
  }
  const releases = `${process.env["GITHUB_SERVER_URL"] || "https://github.com"}/${repository}/releases`;
  const exact = version === "latest" ? await latest(releases) : VERSION.exec(version || own())?.[1];
  if (exact === undefined) throw new Error(`"${version}" is not a version; "1.2.3", "latest" and "source" are`);
  const url = `${releases}/download/v${exact}`;
  if (exact === "" || (!version && !(await isThere(`${url}/SHA256SUMS`)))) {
    core.warning("there is no such release yet: building dcctl from source, which takes a few minutes");
    return fromSource();
  }
  return fromRelease(url, exact, checksum);
}

/** The version of the source. */
function own(): string {
  return /^version = "(.+)"$/m.exec(readFileSync(join(SOURCE, "Cargo.toml"), "utf8"))?.[1] ?? "";
}

/** Whether there is such a file; what is not said to be missing is there, or its download will say why not. */
async function isThere(url: string): Promise<boolean> {
  return (await fetch(url, { method: "HEAD" })).status !== 404;
}

/** The version of the newest release; empty when there is none. */
async function latest(releases: string): Promise<string | undefined> {
  const answer = await fetch(`${releases}/latest`, { redirect: "manual" });
  if (answer.status === 404) return "";
  const place = answer.headers.get("location") ?? "";
  const found = VERSION.exec(place.split("/").pop() ?? "")?.[1];
  // The list of releases itself is where one is sent to when there is none.
  if (found === undefined && /\/releases\/?$/.test(place)) return "";
  if (found === undefined) throw new Error(`${releases}/latest answered ${answer.status} and names no version`);
  return found;
}

async function fromRelease(url: string, version: string, checksum: string): Promise<string> {
  const machine = MACHINES[process.arch];
  if (process.platform !== "linux" || !machine) {
    throw new Error(`there is no dcctl for ${process.platform} on ${process.arch}; it is made for Linux on x86_64 and aarch64`);
  }
  const known = cache.find(TOOL, version);
  if (known && !checksum) return known;
  const name = `dcctl-${machine}-linux.tar.gz`;
  const archive = await cache.downloadTool(`${url}/${name}`);
  const sums = readFileSync(await cache.downloadTool(`${url}/SHA256SUMS`), "utf8");
  const expected = checksumOf(sums, name);
  const found = createHash("sha256").update(readFileSync(archive)).digest("hex");
  for (const right of [expected, checksum.toLowerCase()].filter(Boolean)) {
    if (found !== right) throw new Error(`${name} of version ${version} has the SHA-256 ${found} and not ${right}: it is not used`);
  }
  return cache.cacheDir(await cache.extractTar(archive), TOOL, version);
}

/** What a list as `sha256sum` writes it says of a file. */
export function checksumOf(sums: string, name: string): string {
  for (const line of sums.split("\n")) {
    const [, sum, file] = /^([0-9a-f]{64}) [ *](.+)$/.exec(line.trim()) ?? [];
    if (file === name && sum) return sum;
  }
  throw new Error(`SHA256SUMS of the release does not name ${name}: it is not used`);
}

/** Builds the source that this action lies in; needs Rust. */
function fromSource(): string {
  const target = mkdtempSync(join(process.env["RUNNER_TEMP"] || tmpdir(), "dcctl-build-"));
  core.startGroup("building dcctl from source");
  const words = ["build", "--release", "--locked", "--bin", "dcctl", "--target-dir", target];
  execFileSync("cargo", words, { cwd: SOURCE, stdio: ["ignore", "inherit", "inherit"] });
  core.endGroup();
  return join(target, "release");
}
