// `ws` of npm as a server of WebSockets that echoes. FULLBORE_MODULES names the folder where it is installed.
import http from 'node:http';
import { createRequire } from 'node:module';

const { WebSocketServer } = createRequire(`${process.env.FULLBORE_MODULES}/`)('ws');
const server = http.createServer();
new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket) => {
  socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on('error', () => {});
});
server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
