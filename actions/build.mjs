// Bundles each entry point of the actions into the one file that is checked in: a runner installs nothing.
//
//   node build.mjs                writes run/dist and setup/dist
//   node build.mjs FOLDER         writes the same under FOLDER, to be compared
//   node build.mjs test           writes dist/test, for `node --test`
//
// CommonJS, because the toolkit's own output as an ES module fails when it is run.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "esbuild";

const here = import.meta.dirname;
const common = {
  absWorkingDir: here,
  bundle: true,
  platform: "node",
  target: "node20",
  format: "cjs",
  charset: "utf8",
  legalComments: "inline",
  logLevel: "warning",
};
const [where] = process.argv.slice(2);

if (where === "test") {
  const entryPoints = readdirSync(`${here}/test`).filter((name) => name.endsWith(".test.ts")).map((name) => `test/${name}`);
  // A test looks for the tree from where it lies itself, so the bundles of tests keep their depth.
  await build({ ...common, entryPoints, outdir: "dist/test", sourcemap: "inline" });
} else {
  const { metafile } = await build({
    ...common,
    metafile: true,
    entryPoints: {
      "run/dist/main": "run/src/main.ts",
      "run/dist/post": "run/src/post.ts",
      "setup/dist/main": "setup/src/main.ts",
    },
    outdir: where ?? ".",
    minifySyntax: true,
    minifyWhitespace: true,
  });
  for (const action of ["run", "setup"]) {
    const made = Object.entries(metafile.outputs).filter(([path]) => path.includes(`${action}/dist/`));
    const inputs = made.flatMap(([, { inputs }]) => Object.keys(inputs));
    writeFileSync(resolve(here, where ?? ".", action, "dist/licenses.txt"), licenses(inputs));
  }
}

/** The licences of the packages that these files are of. */
function licenses(files) {
  const folders = files.map((file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0]).filter(Boolean);
  const texts = [...new Set(folders)].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(here, folder, "package.json"), "utf8"));
    const file = readdirSync(join(here, folder)).find((known) => /^licen[cs]e/i.test(known));
    const text = file ? readFileSync(join(here, folder, file), "utf8").trim() : "";
    return `${name} ${version}, ${license}\n\n${text}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}
