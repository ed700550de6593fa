// What producers submit and at which pace: benchmarks/peers/programs/load.py, for Node.
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { now } from "./recording.mjs";

/** Finds packages in the peer's environment, which is not above this file. */
export const require = createRequire(`${process.env.PULSE_BENCH_MODULES}/`);
export const storeUrl = process.env.PULSE_BENCH_STORE;

/**
 * What a caller submits first, so that its connection and its statements are made before the clock starts.
 * The time in it, 0, distinguishes it from what is measured.
 */
const warmUpPayload = () => ({ ...payload(0), t: 0 });

/** About fifty bytes of JSON that carry the moment of submission. */
const payload = (number) => ({ i: number, t: now(), p: "x".repeat(16) });

/** Submit that many jobs, each producer awaiting one at a time. Returns the seconds it took. */
export async function produce(count, producers, gap, submit) {
  let next = 0;
  async function run() {
    const begin = now();
    for (let turn = 0; next < count; turn++) {
      const number = next++;
      const wait = begin + turn * gap - now();
      if (gap && wait > 0) await sleep(wait * 1000);
      await submit(payload(number));
    }
  }
  await Promise.all(Array.from({ length: producers }, () => submit(warmUpPayload())));
  const started = now();
  await Promise.all(Array.from({ length: producers }, run));
  return now() - started;
}

/** Submit that many jobs in batches, one after another. Returns the seconds it took. */
export async function bulk(count, size, submit) {
  const batches = [];
  for (let start = 0; start < count; start += size) {
    const length = Math.min(size, count - start);
    batches.push(Array.from({ length }, (_, place) => payload(start + place)));
  }
  await submit([warmUpPayload()]);
  const started = now();
  for (const batch of batches) await submit(batch);
  return now() - started;
}
