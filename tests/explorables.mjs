// Calls one exported function of a module many times: node tests/explorables.mjs MODULE NAME < arguments.json
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , file, name] = process.argv;
const module = await import(pathToFileURL(file));
const calls = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(calls.map((values) => module[name](...values))));
