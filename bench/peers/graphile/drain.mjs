// Works off JOBS no-op jobs with one process and prints {"seconds", "cpu_seconds", "jobs"}: from the first task's start until the table
// is empty. Settings: its own performance test's (local queue of 500, refetch after 10 ms, completions batched at once).
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import pg from "pg";

const [url, jobsText, concurrencyText, sizeText] = process.argv.slice(2);
const jobs = Number(jobsText);
const concurrency = Number(concurrencyText);
const size = Number(sizeText);
const silent = new Logger(() => () => {});
const pool = new pg.Pool({ connectionString: url, max: 1 });
const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
await utils.migrate();
await utils.release();

let began;
let before;
let ran = 0;
let allRan;
const ended = new Promise((resolve) => { allRan = resolve; });
const runner = await run({
  preset: {
    worker: {
      connectionString: url,
      concurrentJobs: concurrency,
      maxPoolSize: concurrency + 1,
      ...(size > 0 ? { localQueue: { size, refetchDelay: { durationMs: 10 } }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {}),
      logger: silent,
    },
  },
  logger: silent,
  noHandleSignals: true,
  taskList: {
    noop: async () => {
      if (began === undefined) {
        began = performance.now();
        before = process.cpuUsage();
      }
      ran += 1;
      if (ran === jobs) allRan();
    },
  },
});
await ended;
while ((await pool.query("select exists (select from graphile_worker._private_jobs) as some")).rows[0].some) {
  await new Promise((resolve) => setTimeout(resolve, 2));
}
const seconds = (performance.now() - began) / 1000;
const spent = process.cpuUsage(before);
await runner.stop();
await pool.end();
console.log(JSON.stringify({ seconds, cpu_seconds: (spent.user + spent.system) / 1e6, jobs: ran }));
process.exit(0);
