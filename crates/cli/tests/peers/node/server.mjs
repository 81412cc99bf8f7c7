// Node's http2 as a server of the interop suite, over cleartext (prior knowledge) and TLS.
//
//   node server.mjs ROOT [CERT KEY]
//
// Prints "listening on URL", and for each body that it was sent "upload NAME BYTES SHA256". It answers an upload with that
// digest. Bodies are streamed and never held.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import path from 'node:path';

const [root, cert, key] = process.argv.slice(2);
const server = cert
  ? http2.createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) })
  : http2.createServer();

server.on('stream', (stream, headers) => {
  stream.on('error', (error) => console.error('peer: stream:', error));
  const name = path.basename(new URL(headers[':path'], 'http://peer').pathname);
  if (headers[':method'] === 'PUT' || headers[':method'] === 'POST') {
    receive(stream, name);
  } else if (headers[':method'] === 'GET' || headers[':method'] === 'HEAD') {
    send(stream, name);
  } else {
    // With a file, Node 20 can end with a segmentation fault when the client resets the stream (nodejs/node issue 56825).
    stream.respond({ ':status': 405, allow: 'GET, HEAD, POST, PUT' }, { endStream: true });
  }
});

function send(stream, name) {
  stream.respondWithFile(path.join(root, name), { ':status': 200 }, {
    statCheck(stat, response) {
      response['content-length'] = stat.size;
    },
    onError() {
      if (!stream.headersSent) {
        stream.respond({ ':status': 404 });
      }
      stream.end();
    },
  });
}

async function receive(stream, name) {
  const hash = createHash('sha256');
  let count = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    count += chunk.length;
  }
  const digest = hash.digest('hex');
  console.log(`upload ${name} ${count} ${digest}`);
  stream.respond({ ':status': 200 });
  stream.end(`${digest}\n`);
}

server.listen(0, '127.0.0.1', () => {
  console.log(`listening on ${cert ? 'https' : 'http'}://127.0.0.1:${server.address().port}`);
});
