// Calls the exported functions of a module: node tests/explorables.mjs MODULE NAME < arguments.json calls one many times;
// without a name each line of the input is [name, [arguments, ...]], and each line of the output the results.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , file, only] = process.argv;
const module = await import(pathToFileURL(file));
const results = (name, calls) => JSON.stringify(calls.map((values) => module[name](...values)));
if (only) process.stdout.write(results(only, JSON.parse(readFileSync(0, "utf8"))));
else for await (const line of createInterface({ input: process.stdin })) console.log(results(...JSON.parse(line)));
