// Node's http as an origin of the interop suite: prints "request JSON" for each request whose body is whole, and answers
// with that. Octets are the characters U+0000 to U+00FF.
import http from 'node:http';

const pairs = (raw) => {
  const fields = [];
  for (let at = 0; at < raw.length; at += 2) fields.push([raw[at].toLowerCase(), raw[at + 1]]);
  return fields;
};

const server = http.createServer({ requireHostHeader: false }, (request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('error', () => console.log(`broken ${request.url}`));
  request.on('end', () => {
    const seen = JSON.stringify({
      method: request.method,
      target: request.url,
      fields: pairs(request.rawHeaders),
      body: Buffer.concat(pieces).toString('latin1'),
      trailers: pairs(request.rawTrailers),
    });
    console.log(`request ${seen}`);
    response.setHeader('content-type', 'application/json');
    response.end(Buffer.from(seen, 'latin1'));
  });
});
server.on('clientError', (error, socket) => {
  // What is no HTTP is told. A connection that ends within a request is an end that the peer wanted.
  if (String(error.code).startsWith('HPE_') && error.code !== 'HPE_INVALID_EOF_STATE') console.log(`refused ${error.code}`);
  if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
  else socket.destroy();
});
server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
