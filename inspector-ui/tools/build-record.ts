/**
 * Writes build.json: digests of the sources and of each built file.
 * A test on a machine without npm compares them, so that a source changed without a build, or a built file changed by hand, is seen.
 */
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { Plugin } from "vite";

const SOURCES = ["index.html", "package.json", "package-lock.json", "public", "src", "tools", "tsconfig.json", "vite.config.ts"];

export function buildRecord(): Plugin {
  let root = "";
  let built = "";
  return {
    name: "build-record",
    apply: "build",
    configResolved(config) {
      root = config.root;
      built = join(root, config.build.outDir);
    },
    closeBundle() {
      const files = filesUnder(built).filter((file) => !file.endsWith("build.json"));
      const digests = Object.fromEntries(files.map((file) => [relative(built, file), sha256(readFileSync(file))]));
      const record = { source: sourceDigest(root), files: digests };
      writeFileSync(join(built, "build.json"), JSON.stringify(record, null, 1) + "\n");
    },
  };
}

/** One digest of all sources: for each file, in the order of paths, `path NUL length NUL content`. */
function sourceDigest(root: string): string {
  const hash = createHash("sha256");
  const paths = SOURCES.flatMap((name) => filesUnder(join(root, name))).map((file) => relative(root, file));
  for (const path of paths.sort()) {
    const content = readFileSync(join(root, path));
    hash.update(`${path}\0${content.length}\0`).update(content);
  }
  return hash.digest("hex");
}

function filesUnder(path: string): string[] {
  if (statSync(path).isFile()) return [path];
  return readdirSync(path).sort().flatMap((name) => filesUnder(join(path, name)));
}

function sha256(content: Buffer): string {
  return createHash("sha256").update(content).digest("hex");
}
