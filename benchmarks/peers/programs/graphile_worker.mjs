// graphile-worker's side of the benchmark:
//   install | produce COUNT PRODUCERS GAP | bulk COUNT SIZE | work SLOTS LOCAL_QUEUE CONNECTIONS
import { bulk, produce, require, storeUrl } from "./load.mjs";
import { record, untilLetLoose } from "./recording.mjs";

const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const [command, ...words] = process.argv.slice(2);
const numbers = words.map(Number);
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

if (command === "work") {
  await work(...numbers);
} else {
  const utils = await makeWorkerUtils({ connectionString: storeUrl, maxPoolSize: 10, logger });
  console.log(await obey(utils));
  await utils.release();
}

async function obey(utils) {
  switch (command) {
    case "install":
      await utils.migrate();
      return 0;
    case "produce":
      return produce(...numbers, (payload) => utils.addJob("record", payload));
    case "bulk":
      return bulk(...numbers, (payloads) =>
        utils.addJobs(payloads.map((payload) => ({ identifier: "record", payload }))),
      );
    default:
      throw new Error(`this program does not understand ${command}`);
  }
}

async function work(slots, localQueue, connections) {
  const worker = {
    connectionString: storeUrl,
    concurrentJobs: slots,
    maxPoolSize: connections,
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  if (localQueue) worker.localQueue = { size: localQueue };
  const taskList = { record: async (payload) => record(payload.t) };
  await untilLetLoose();
  await run({ preset: { worker }, logger, taskList });
}
