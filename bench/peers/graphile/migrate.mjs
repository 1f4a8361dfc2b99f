// Creates graphile-worker's schema.
import { makeWorkerUtils, Logger } from "graphile-worker";

const utils = await makeWorkerUtils({ connectionString: process.argv[2], logger: new Logger(() => () => {}) });
await utils.migrate();
await utils.release();
