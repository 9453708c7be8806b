import { defineConfig } from "vite";
import { buildRecord } from "./tools/build-record.ts";
import { notices } from "./tools/notices.ts";

// The built files are committed and served by the Python package: no hashes in their names, one script, one style sheet.
export default defineConfig({
  base: "/inspect/static/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/inspect/api": "http://127.0.0.1:8000", "/v1": "http://127.0.0.1:8000" } },
  build: {
    outDir: "../zllm_ref/inspector/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rollupOptions: { output: { entryFileNames: "app.js", assetFileNames: "app[extname]", codeSplitting: false } },
  },
  plugins: [notices(), buildRecord()],
});
