// The same layout as benchmarks/recorder.py: count (u64), connected (u64), then pairs of doubles.
// Node maps no files: hits are gathered and written every few milliseconds, pairs before the count.
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const CAPACITY = 1_200_000;
const HEADER_BYTES = 16;
const PAIR_BYTES = 16;
const FLUSH_MILLISECONDS = 5;

let file = null;
let pending = [];
let written = 0;

export const now = () => (performance.timeOrigin + performance.now()) / 1000;

export function record(submitted) {
  pending.push(submitted, now());
}

/** Open the recording of this process, report to the observer that its worker is up, and wait until it may take jobs. */
export async function untilLetLoose() {
  file = fs.openSync(`${process.env.PULSE_BENCH_RECORDINGS}/recording-${process.pid}`, "w+");
  fs.ftruncateSync(file, HEADER_BYTES + CAPACITY * PAIR_BYTES);
  writeNumber(1n, 8);
  setInterval(flush, FLUSH_MILLISECONDS);
  while (!fs.existsSync(`${process.env.PULSE_BENCH_RECORDINGS}/go`)) await sleep(1);
}

function flush() {
  if (pending.length === 0) return;
  const pairs = new Uint8Array(Float64Array.from(pending).buffer);
  pending = [];
  fs.writeSync(file, pairs, 0, pairs.length, HEADER_BYTES + written * PAIR_BYTES);
  written += pairs.length / PAIR_BYTES;
  writeNumber(BigInt(written), 0);
}

function writeNumber(number, position) {
  fs.writeSync(file, new Uint8Array(BigUint64Array.of(number).buffer), 0, 8, position);
}
