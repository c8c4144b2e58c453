// @platformatic/kafka for Node.js: its producer streams, whose batches replace lingering, and `send` for single messages.
// A peer, see bench/README.md. Its first argument is the folder that it is installed in.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'

const MESSAGES_OF_A_BATCH = 1000
const BYTES_OF_A_BATCH = 900_000 // brokers reject batches of more than 1 MB
const BYTES_AROUND_A_PAYLOAD = 80

const [directory, workload] = process.argv.slice(2)
const { values: options } = parseArgs({
  args: process.argv.slice(4),
  options: {
    bootstrap: { type: 'string' },
    topic: { type: 'string' },
    producers: { type: 'string', default: '1' },
    messages: { type: 'string' },
    size: { type: 'string', default: '100' },
    key: { type: 'boolean', default: false },
    headers: { type: 'boolean', default: false },
    set: { type: 'string', multiple: true, default: [] }
  }
})

const SETTINGS = {
  acks: value => ({ acks: value === 'all' ? -1 : Number(value) }),
  'client.id': clientId => ({ clientId }),
  'compression.type': compression => ({ compression }),
  'enable.idempotence': value => ({ idempotent: value === 'true' }),
  'max.in.flight.requests.per.connection': value => ({ maxInflights: Number(value) }),
  'metadata.max.age.ms': value => ({ metadataMaxAge: Number(value) }),
  'request.timeout.ms': value => ({ timeout: Number(value) }),
  retries: value => ({ retries: Number(value) }),
  'retry.backoff.ms': value => ({ retryDelay: Number(value) })
}

// Differences from other clients, reported with `ready`.
const differs = []
const given = Object.fromEntries(options.set.map(setting => setting.split(/=(.*)/s, 2)))
const settings = {}
for (const [name, value] of Object.entries(given)) {
  if (SETTINGS[name]) Object.assign(settings, SETTINGS[name](value))
  else if (name !== 'linger.ms' && name !== 'batch.size') differs.push(`${name} is unknown to it`)
}
if (settings.idempotent) differs.push('one request in flight, as enable.idempotence is on')

const size = Number(options.size)
const bytes = Math.min(Number(given['batch.size'] ?? BYTES_OF_A_BATCH), BYTES_OF_A_BATCH)
const batchSize = Math.max(1, Math.min(MESSAGES_OF_A_BATCH, Math.floor(bytes / (size + BYTES_AROUND_A_PAYLOAD))))
const batchTime = Number(given['linger.ms'] ?? 0)

function buildMessages () {
  const headers = new Map([['trace', 't'.repeat(32)], ['kind', 'bench']].map(pair => pair.map(text => Buffer.from(text))))
  return Array.from({ length: Number(options.messages) }, (_, number) => ({
    topic: options.topic,
    value: Buffer.alloc(size, 'x'),
    ...(options.key && { key: Buffer.from(String(number)) }),
    ...(options.headers && { headers })
  }))
}

// Returns when every message has been reported, one by one or in batches.
async function stream (producer, messages, reportMode) {
  let delivered = 0
  const stream = producer.asStream({ batchSize, batchTime, reportMode, highWaterMark: 10 * batchSize })
  stream.on('delivery-report', reportMode === 'batch' ? ({ count }) => { delivered += count } : () => { delivered++ })
  for (const message of messages) {
    if (!stream.write(message)) await once(stream, 'drain')
  }
  await stream.close()
  return { delivered }
}

async function oneByOne (producer, messages) {
  const latencies = []
  for (const message of messages) {
    const begun = performance.now()
    await producer.send({ messages: [message] })
    latencies.push((performance.now() - begun) * 1000)
  }
  return { delivered: latencies.length, latencies_us: latencies }
}

const WORKLOADS = {
  batch: (producer, messages) => stream(producer, messages, 'batch'),
  async: (producer, messages) => stream(producer, messages, 'message'),
  sync: oneByOne
}

function say (answer) {
  console.log(JSON.stringify(answer))
}

async function main () {
  const run = WORKLOADS[workload]
  if (!run) process.exit(64)
  const home = join(directory, 'node_modules/@platformatic/kafka')
  const about = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))
  const { Producer } = await import(pathToFileURL(join(home, 'dist/index.js')))
  const count = workload === 'batch' ? Number(options.producers) : 1
  const producers = Array.from({ length: count }, () => new Producer({
    clientId: 'bench', bootstrapBrokers: options.bootstrap.split(','), acks: -1, autocreateTopics: true, ...settings
  }))
  if (workload === 'sync' && batchTime > 0) differs.push('sync: linger.ms is unknown to its send')
  if (workload !== 'sync') differs.push(`batches of up to ${batchSize} messages, one under way at a time for each producer`)
  if (count > 1) differs.push('all producers in one thread')

  const messages = buildMessages()
  for (const producer of producers) await producer.send({ messages: messages.slice(0, 1) })
  say({ ready: `${about.name} ${about.version}, Node.js ${process.versions.node}`, differs })

  for await (const _ of createInterface({ input: process.stdin })) {
    const started = performance.now()
    const results = await Promise.all(producers.map(producer => run(producer, messages)))
    const seconds = (performance.now() - started) / 1000
    const delivered = results.reduce((sum, result) => sum + result.delivered, 0)
    say({ ...results[0], seconds, delivered, failed: count * messages.length - delivered })
  }
  await Promise.all(producers.map(producer => producer.close()))
}

// Node.js itself ends the process after an error, with the text on stderr and status 1.
await main()
