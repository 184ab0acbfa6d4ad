// express-idempotency as its README has it: the middleware on POST, isHit() in the handler, the default store in memory.
const express = require('express'), work = require('./work.js');
const { idempotency, getSharedIdempotencyService } = require('express-idempotency');
const app = express();
app.get('/charges/count', (request, response) => response.type('text').send(String(work.count())));
app.use(express.json());
app.post('*', idempotency());
const charge = async (request, response, next) => {
  if (getSharedIdempotencyService().isHit(request)) return;
  try {
    const done = await work.charge(request.headers, request.body);
    if (done.location) response.set('Location', done.location);
    response.status(done.status).json(done.body);
  } catch (error) { next(error); }
};
app.post('/charges', charge);
app.post('/refunds', charge);
app.listen(process.env.PORT, '127.0.0.1');
