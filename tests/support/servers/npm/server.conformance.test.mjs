// Runs the published conformance tests of servers against the one at CONFORMANCE_TEST_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({
  baseUrl: process.env.CONFORMANCE_TEST_URL,
  subscriptions: process.env.CONFORMANCE_TEST_SUBSCRIPTIONS === "1",
})
