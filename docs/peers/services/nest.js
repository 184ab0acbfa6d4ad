// @node-idempotency/nestjs as its README has it: forRootAsync with redis, and @Idempotent() on the handlers.
require('reflect-metadata');
const { Module, Controller, Post, Get, Req, Res, Header, HttpException } = require('@nestjs/common');
const { NestFactory } = require('@nestjs/core');
const { NodeIdempotencyModule, Idempotent } = require('@node-idempotency/nestjs');
const work = require('./work.js');
class Charges {
  count() { return String(work.count()); }
  async charge(request, response) {
    const done = await work.charge(request.headers, request.body);
    if (done.status >= 400) throw new HttpException(done.body, done.status);
    response.set('Location', done.location).status(done.status);
    return done.body;
  }
  async refund(request, response) { return this.charge(request, response); }
}
// Decorators by hand: plain Node has no syntax for them.
const decorate = (name, ...decorators) => {
  const descriptor = Object.getOwnPropertyDescriptor(Charges.prototype, name);
  decorators.reverse().forEach((decorator) => decorator(Charges.prototype, name, descriptor));
};
decorate('count', Get('charges/count'), Header('content-type', 'text/plain'));
for (const [name, path] of [['charge', 'charges'], ['refund', 'refunds']]) {
  Req()(Charges.prototype, name, 0);
  Res({ passthrough: true })(Charges.prototype, name, 1);
  decorate(name, Post(path), Idempotent());
}
Controller()(Charges);
class App {}
const storage = { adapter: 'redis', options: { url: process.env.REDIS } };
Module({ imports: [NodeIdempotencyModule.forRootAsync({ storage })], controllers: [Charges] })(App);
NestFactory.create(App, { logger: ['error'] }).then((app) => app.listen(process.env.PORT, '127.0.0.1'));
