// No layer at all: the control row, and the service behind our gateway.
const http = require('http'), work = require('./work.js');
http.createServer(async (request, response) => {
  if (request.method === 'GET') return response.end(String(work.count()));
  const text = await work.read(request);
  let body;
  try { body = JSON.parse(text); } catch { return work.send(response, { status: 400, body: { error: 'no JSON' } }); }
  work.send(response, await work.charge(request.headers, body));
}).listen(process.env.PORT, '127.0.0.1');
