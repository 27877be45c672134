// What the official client for Node does against a server; test_node.py runs it and counts what passed.
// Arguments: base URL, token, model. Each check prints one line of JSON.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const short = { model, temperature: 0, max_output_tokens: 16 };
const input = "Say hello to the sea.";
const messages = [{ role: "user", content: input }];
const Fruit = z.object({ colour: z.enum(["red", "green"]), ripe: z.boolean() });
const City = z.object({ city: z.enum(["Paris", "Lima"]) });
const weather = zodResponsesFunction({ name: "get_weather", parameters: City });
const oneCall = { tools: [weather], tool_choice: "required", parallel_tool_calls: false };

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

const checks = {
  async create() {
    const response = await client.responses.create({ ...short, input });
    assert.ok(response.output_text.trim());
    assert.ok(response._request_id.startsWith("req_"));
    const { usage } = response;
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  },

  async parse() {
    const text = { format: zodTextFormat(Fruit, "fruit") };
    const response = await client.responses.parse({ model, input: "Describe a lemon.", text });
    Fruit.parse(response.output_parsed);
  },

  async tools() {
    const asked = { role: "user", content: "What is the weather in Lima?" };
    const called = await client.responses.parse({ model, input: [asked], ...oneCall });
    const [call] = called.output;
    assert.equal(call.type, "function_call");
    City.parse(call.parsed_arguments);
    const result = { type: "function_call_output", call_id: call.call_id, output: "22 degrees" };
    const rest = { ...short, tools: [weather], tool_choice: "none" };
    const chained = await client.responses.create({ ...rest, input: [result], previous_response_id: called.id });
    assert.ok(chained.output_text.trim());
  },

  async stream() {
    const events = await all(await client.responses.create({ ...short, input, stream: true }));
    assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
    const text = events.flatMap((event) => (event.type === "response.output_text.delta" ? [event.delta] : []));
    const { output } = events.at(-1).response;
    assert.equal(text.join(""), output[0].content[0].text);
  },

  async "stream helper"() {
    const helper = client.responses.stream({ model, input: "A fig.", text: { format: zodTextFormat(Fruit, "fruit") } });
    let deltas = 0;
    helper.on("response.output_text.delta", () => { deltas += 1; });
    Fruit.parse((await helper.finalResponse()).output_parsed);
    assert.ok(deltas > 0);
  },

  async background() {
    let response = await client.responses.create({ ...short, input, background: true });
    while (["queued", "in_progress"].includes(response.status)) {
      response = await client.responses.retrieve(response.id);
    }
    assert.ok(response.output_text.trim());
  },

  async "resume by cursor"() {
    const seen = [];
    for await (const event of await client.responses.create({ ...short, input, background: true, stream: true })) {
      seen.push(event);
      if (seen.length === 6) break;
    }
    const { id } = seen[0].response;
    const after = { stream: true, starting_after: seen.at(-1).sequence_number };
    seen.push(...(await all(await client.responses.retrieve(id, after))));
    assert.deepEqual(await all(await client.responses.retrieve(id, { stream: true })), seen);
  },

  async "the stream helper by id"() {
    const { id } = await client.responses.create({ model, input: "A fig.", background: true, ...fig() });
    const helper = client.responses.stream({ response_id: id, starting_after: 2 });
    const numbers = (await all(helper)).map((event) => event.sequence_number);
    assert.equal(numbers[0], 3);
    assert.equal((await helper.finalResponse()).status, "completed");
  },

  async cancel() {
    const { id } = await client.responses.create({ model, input: "Tell me a very long story.", background: true });
    const cancelled = await client.responses.cancel(id);
    assert.equal(cancelled.status, "cancelled");
    assert.equal((await client.responses.retrieve(id)).status, "cancelled");
    await client.responses.delete(id);
    await assert.rejects(client.responses.retrieve(id), OpenAI.NotFoundError);
  },

  async "input items and tokens"() {
    const { id, usage } = await client.responses.create({ ...short, input });
    const items = await all(await client.responses.inputItems.list(id));
    assert.deepEqual(items.map((item) => item.content[0].text), [input]);
    assert.equal((await client.responses.inputTokens.count({ model, input })).input_tokens, usage.input_tokens);
  },

  async chat() {
    const asked = { model, messages, temperature: 0, max_completion_tokens: 16 };
    const whole = await client.chat.completions.create(asked);
    const chunks = await all(await client.chat.completions.create({ ...asked, stream: true }));
    const text = chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join("");
    assert.equal(text, whole.choices[0].message.content);
  },

  async "chat parse and tools"() {
    const response_format = zodResponseFormat(Fruit, "fruit");
    const parsed = await client.chat.completions.parse({ model, messages, response_format });
    Fruit.parse(parsed.choices[0].message.parsed);
    const tools = [zodFunction({ name: "get_weather", parameters: City })];
    const helper = client.chat.completions.stream({
      model, messages, tools, tool_choice: "required", parallel_tool_calls: false,
    });
    const [call] = (await helper.finalChatCompletion()).choices[0].message.tool_calls;
    City.parse(call.function.parsed_arguments);
  },

  async models() {
    const listed = await all(await client.models.list());
    assert.ok(listed.some((each) => each.id === model));
    assert.equal((await client.models.retrieve(model)).id, model);
  },

  async errors() {
    const bad = await client.responses.create({ model, input, temperature: 3 }).catch((error) => error);
    assert.ok(bad instanceof OpenAI.BadRequestError);
    assert.equal(bad.param, "temperature");
    assert.ok(bad.requestID.startsWith("req_"));
    const stranger = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(all(stranger.models.list()), OpenAI.AuthenticationError);
    await assert.rejects(client.responses.compact({ model, input }), { status: 501, code: "not_implemented" });
  },
};

function fig() {
  return { text: { format: zodTextFormat(Fruit, "fruit") } };
}

for (const [name, check] of Object.entries(checks)) {
  const problem = await check().then(() => null, (error) => error.stack);
  console.log(JSON.stringify({ name, problem }));
}
