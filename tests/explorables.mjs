// Calls the exported functions of a module: each line of the input is [name, [arguments, ...]], of the output the results.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const module = await import(pathToFileURL(process.argv[2]));
for await (const line of createInterface({ input: process.stdin })) {
  const [name, calls] = JSON.parse(line);
  console.log(JSON.stringify(calls.map((values) => module[name](...values))));
}
