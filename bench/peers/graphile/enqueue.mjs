// Adds JOBS jobs in calls of BATCH with addJobs and prints {"seconds"}.
import { makeWorkerUtils, Logger } from "graphile-worker";

const [url, jobsText, batchText] = process.argv.slice(2);
const jobs = Number(jobsText);
const batch = Number(batchText);
const utils = await makeWorkerUtils({ connectionString: url, logger: new Logger(() => () => {}) });
await utils.addJobs([{ identifier: "noop", payload: { n: 0 } }]);
const began = performance.now();
for (let at = 0; at < jobs; at += batch) {
  await utils.addJobs(Array.from({ length: batch }, (_, n) => ({ identifier: "noop", payload: { n: at + n } })));
}
console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
await utils.release();
