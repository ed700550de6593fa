// pg-boss's side of the benchmark:
//   install | produce COUNT PRODUCERS GAP | bulk COUNT SIZE | work FETCHERS BATCH CONNECTIONS [OF_EACH_GROUP]
import { bulk, produce, require, storeUrl } from "./load.mjs";
import { record, untilLetLoose } from "./recording.mjs";

const { PgBoss } = require("pg-boss");

const QUEUE = "bench";
// The shortest that it allows; notifications make it a fallback.
const POLLING_SECONDS = 0.5;

const [command, ...words] = process.argv.slice(2);
const numbers = words.map(Number);

if (command === "work") {
  await work(...numbers);
} else {
  const boss = await start({ max: 10, supervise: false });
  console.log(await obey(boss));
  await boss.stop({ graceful: false });
}

async function obey(boss) {
  switch (command) {
    case "install":
      await boss.createQueue(QUEUE, { notify: true });
      return 0;
    case "produce":
      return produce(...numbers, (payload) => boss.send(QUEUE, payload));
    case "bulk":
      return bulk(...numbers, (payloads) => boss.insert(QUEUE, payloads.map((data) => ({ data }))));
    default:
      throw new Error(`this program does not understand ${command}`);
  }
}

async function work(fetchers, batch, connections, ofEachGroup) {
  const boss = await start({ max: connections, useListenNotify: true });
  const options = {
    localConcurrency: fetchers,
    batchSize: batch,
    pollingIntervalSeconds: POLLING_SECONDS,
    notifyPollingIntervalSeconds: POLLING_SECONDS,
    burstWhenBatchFull: batch > 1,
    ...(ofEachGroup ? { groupConcurrency: ofEachGroup } : {}),
  };
  await untilLetLoose();
  await boss.work(QUEUE, options, async (jobs) => {
    for (const job of jobs) record(job.data.t);
  });
}

async function start(options) {
  const boss = new PgBoss({ connectionString: storeUrl, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}
