// Node's http2 as a client of the interop suite, over cleartext (prior knowledge) and TLS.
//
//   node client.mjs get [--cacert FILE] URL...      prints a line a response: STATUS PROTOCOL BYTES SHA256
//   node client.mjs put [--cacert FILE] FILE URL    prints a line: STATUS PROTOCOL
//
// Bodies are hashed as they pass and never held.
import { createHash } from 'node:crypto';
import { createReadStream, readFileSync, statSync } from 'node:fs';
import http2 from 'node:http2';

const [command, ...args] = process.argv.slice(2);
let ca;
if (args[0] === '--cacert') {
  ca = readFileSync(args[1]);
  args.splice(0, 2);
}

const sessions = new Map();

function session(origin) {
  if (!sessions.has(origin)) {
    sessions.set(origin, http2.connect(origin, { ca }));
  }
  return sessions.get(origin);
}

function responseOf(stream) {
  return new Promise((resolve, reject) => {
    stream.once('response', resolve);
    stream.once('error', reject);
  });
}

async function get(url) {
  const { origin, pathname } = new URL(url);
  const stream = session(origin).request({ ':path': pathname });
  stream.end();
  const headers = await responseOf(stream);
  const hash = createHash('sha256');
  let count = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    count += chunk.length;
  }
  if (stream.rstCode !== 0) {
    throw new Error(`stream reset with code ${stream.rstCode}`);
  }
  console.log(headers[':status'], 'HTTP/2.0', count, hash.digest('hex'));
}

// Waits for the response alone: over TLS, Node 20 sometimes never says that a request was written (see http1-client.mjs).
async function put(file, url) {
  const { origin, pathname } = new URL(url);
  const stream = session(origin).request({
    ':method': 'PUT',
    ':path': pathname,
    'content-length': statSync(file).size,
  });
  const source = createReadStream(file, { highWaterMark: 1 << 20 });
  source.once('error', (error) => stream.destroy(error));
  source.pipe(stream);
  const headers = await responseOf(stream);
  for await (const _ of stream);
  console.log(headers[':status'], 'HTTP/2.0');
}

try {
  if (command === 'get') {
    for (const url of args) {
      await get(url);
    }
  } else if (command === 'put' && args.length === 2) {
    await put(args[0], args[1]);
  } else {
    throw new Error('usage: client.mjs get URL... | put FILE URL');
  }
  for (const open of sessions.values()) {
    open.destroy();
  }
} catch (error) {
  console.error('peer:', error);
  process.exit(1);
}
