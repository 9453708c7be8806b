/** Writes THIRD-PARTY.txt: name, version and licence text of every package of which a line is in the bundle. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Plugin } from "vite";

export function notices(): Plugin {
  return {
    name: "notices",
    apply: "build",
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const id of chunk.moduleIds) if (id.includes("/node_modules/")) folders.add(packageFolder(id));
      }
      const texts = [...folders].sort().map(notice);
      const head = "The inspector's page contains code of these packages.\n";
      this.emitFile({ type: "asset", fileName: "THIRD-PARTY.txt", source: [head, ...texts].join("\n" + "-".repeat(78) + "\n\n") });
    },
  };
}

function packageFolder(id: string): string {
  let folder = dirname(id);
  while (!existsSync(join(folder, "package.json")) || !("version" in manifest(folder))) folder = dirname(folder);
  return folder;
}

function manifest(folder: string): Record<string, string> {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

function notice(folder: string): string {
  const { name, version, license } = manifest(folder);
  const file = ["LICENSE", "LICENSE.md", "license"].map((file) => join(folder, file)).find(existsSync);
  if (!file) throw new Error(`${name}: no licence text in ${folder}`);
  return `${name} ${version} (${license})\n\n${readFileSync(file, "utf8").trim()}\n`;
}
