// Runs the reference server of Durable Streams until SIGINT.
// Usage: node durable_streams.mjs PORT [DATA_DIRECTORY]
// It prints {"port": …} as soon as it listens; port 0 is any free one.
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, dataDir] = process.argv.slice(2)
const server = new DurableStreamTestServer({
  host: "127.0.0.1",
  port: Number(port),
  longPollTimeout: 500,
  webhooks: true,
  ...(dataDir && { dataDir }),
})
process.once("SIGINT", async () => {
  await server.stop()
  process.exit(0)
})
const url = new URL(await server.start())
console.log(JSON.stringify({ port: Number(url.port) }))
