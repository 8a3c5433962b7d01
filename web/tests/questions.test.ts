import { flushSync, mount, unmount } from 'svelte'
import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest'
import '../src/lib/page-messages'
import QuestionCard from '../src/components/questions/QuestionCard.svelte'
import type { QuestionInfo } from '../src/lib/api/schema'
import { loadLanguage } from '../src/lib/i18n.svelte'
import { formFields, formValues } from '../src/lib/questions/form'
import { QuestionList } from '../src/lib/questions/question-list.svelte'
import {
  editableJson,
  parseArguments,
  questionOutcome,
  questionTitle,
  ruleText,
  timeLeft,
  visible,
  visibleName,
} from '../src/lib/questions/question-text'
import { preferences } from '../src/lib/ui/preferences.svelte'

const question = (more: Partial<QuestionInfo> = {}): QuestionInfo => ({
  id: 'q1',
  session_id: 's',
  turn_id: 't',
  kind: 'approval',
  text: '',
  tool: 'send',
  arguments: { to: 'Ann' },
  arguments_text: 'to: Ann',
  diff: null,
  options: [],
  form: null,
  rule: '',
  agent: 'helper',
  where: 'DM with Eva',
  person: null,
  state: 'open',
  outcome: 'Waits for an answer.',
  code: 'K7QP',
  asked_at: '2026-03-02T12:00:00Z',
  expires_at: '2026-03-03T12:00:00Z',
  on_expiry: 'deny',
  answer: null,
  ...more,
})
const answered = (answer: Partial<NonNullable<QuestionInfo['answer']>>, more: Partial<QuestionInfo> = {}) =>
  question({
    state: 'answered',
    answer: {
      decision: 'approve',
      text: '',
      arguments: null,
      values: null,
      always: null,
      by: 'Ada',
      platform: 'telegram',
      at: '2026-03-02T12:05:00Z',
      ...answer,
    },
    ...more,
  })

async function use(language: string) {
  preferences.language = language
  await loadLanguage()
}
afterAll(() => use('en'))

test('what steers or hides is made visible, in names also what joins letters', () => {
  expect(visible('a\u202eb\u200bc\td\ne')).toBe('a\\u202eb\\u200bc\\u0009d\ne')
  expect(visible('\u{e0041}')).toBe('\\udb40\\udc41')
  expect(visible('👩‍🚒 ❤️')).toBe('👩‍🚒 ❤️')
  expect(visibleName('se\u200dnd\n')).toBe('se\\u200dnd\\u000a')
})

test('arguments to edit are JSON in which everything can be seen, and are read back as they were', () => {
  const given = { path: 'safe\u202etxt', deep: [{ 'a\u200b': '"\\\n' }], n: 1.5, emoji: '👩‍🚒' }
  const text = editableJson(given)

  expect(text).toContain('safe\\u202etxt')
  expect(text).not.toMatch(/[\u202e\u200b\u200d]/)
  expect(parseArguments(text)).toEqual({ value: given })
})

test.each([
  ['{"a": }', /^This is not valid JSON: /],
  ['', /^This is not valid JSON: /],
  ['[1]', /JSON object/],
  ['null', /JSON object/],
  ['{"id": 12345678901234567890}', /too large/],
])('arguments that cannot be sent are explained: %s', (text, words) => {
  const parsed = parseArguments(text)

  expect('error' in parsed && parsed.error).toMatch(words)
})

const SCHEMA = {
  type: 'object',
  properties: {
    city: { type: 'string', title: 'City', default: 'Oslo' },
    nights: { type: 'integer' },
    price: { type: 'number' },
    size: { type: 'integer', enum: [1, 2], enumNames: ['small', 'large'], default: 2 },
    breakfast: { type: 'boolean', default: true },
    'no\u202ete': { type: 'string' },
  },
  required: ['city', 'nights'],
}

test('a form has a field for each value, with its label, choices and default', () => {
  const fields = formFields(SCHEMA)

  expect(fields.map((each) => [each.label, each.type, each.required, each.initial])).toEqual([
    ['City', 'string', true, 'Oslo'],
    ['nights', 'integer', true, ''],
    ['price', 'number', false, ''],
    ['size', 'integer', false, '1'],
    ['breakfast', 'boolean', false, true],
    ['no\\u202ete', 'string', false, ''],
  ])
  expect(fields[3]?.choices?.map((each) => each.label)).toEqual(['small', 'large'])
  expect(formFields(null)).toEqual([])
})

test('the values of a form have the types that were asked for; what is empty is left out', () => {
  const fields = formFields(SCHEMA)

  expect(formValues(fields, { nights: '3', price: '2.50', size: '0', breakfast: false })).toEqual({
    values: { city: 'Oslo', nights: 3, price: 2.5, size: 1, breakfast: false },
    problems: {},
  })
  expect(formValues(fields, { city: ' ', nights: '2.5', price: 'much' }).problems).toEqual({
    city: 'City is missing.',
    nights: 'nights must be a whole number.',
    price: 'price must be a number.',
  })
})

test.each([
  [answered({}), 'Approved by Ada'],
  [
    answered({ by: 'The owner', always: 'session' }),
    'Approved by the owner; the tool may run in this session from now on',
  ],
  [answered({ arguments: { to: 'Bob' } }), 'Approved by Ada, with other arguments'],
  [answered({ decision: 'deny' }), 'Denied by Ada'],
  [answered({ decision: 'deny', text: 'too late' }), 'Denied by Ada: too late'],
  [answered({ text: 'Red' }, { kind: 'choice' }), 'Answered by Ada: Red'],
  [answered({ values: {} }, { kind: 'form' }), 'Answered by Ada with the form'],
  [answered({ by: null }), 'Approved by nobody'],
  [question({ state: 'expired' }), 'Nobody answered in time'],
  [question({ state: 'withdrawn' }), 'No answer is needed any more'],
  [question(), ''],
])('an outcome is told in one line: %#', (asked, text) => {
  expect(questionOutcome(asked)).toBe(text)
})

test('a question says how long it waits, what happens then, and why it is asked', () => {
  const at = (hours: number) => Date.parse('2026-03-02T12:00:00Z') + hours * 3_600_000

  expect(timeLeft(question(), at(0))).toBe('Waits 24 h longer, then it counts as denied')
  expect(timeLeft(question({ on_expiry: 'end' }), at(23.5))).toBe('Waits 30 m longer, then the turn ends')
  expect(timeLeft(question(), at(23.999))).toBe('Waits 1 m longer, then it counts as denied')
  expect(timeLeft(question(), at(25))).toBe('Its time is over')
  expect(ruleText('rule 1 of [[policy]]')).toBe('rule 1 of [[policy]]')
  expect(questionTitle(question({ tool: 'se\u202end' }))).toBe('May the tool se\\u202end be called?')
  expect(questionTitle(question({ kind: 'text', text: 'When?' }))).toBe('When?')
})

test('a usual reason is told in the language of the page', async () => {
  await use('de')

  expect(ruleText('the tool may change something, and this is a group')).toContain('dies ist eine Gruppe')
})

let mounted: object | null = null
let sent: [string, unknown][] = []
let open: QuestionInfo[] = []
let later: Record<string, QuestionInfo> = {}

beforeEach(async () => {
  await use('en')
  preferences.letters = true
  sent = []
  open = []
  later = {}
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe() {}
      disconnect() {}
    },
  )
  vi.stubGlobal('fetch', (url: string, init: RequestInit = {}) => {
    const id = /\/questions\/(\w+)/.exec(url)?.[1]
    if (init.method === 'POST') {
      sent.push([url, JSON.parse(String(init.body))])
      return Promise.resolve(Response.json(answered({ by: 'The owner' })))
    }
    if (url.includes('/me')) return Promise.resolve(Response.json({ csrf: 'x' }))
    if (id) return Promise.resolve(Response.json(later[id] ?? {}, { status: later[id] ? 200 : 404 }))
    return Promise.resolve(Response.json({ items: [...open].reverse(), next: null }))
  })
})
afterEach(() => {
  if (mounted) void unmount(mounted)
  mounted = null
  vi.unstubAllGlobals()
})

function show(asked: QuestionInfo) {
  const list = new QuestionList('s')
  list.items = [asked]
  mounted = mount(QuestionCard, { target: document.body, props: { question: asked, list } })
  flushSync()
  return document.querySelector<HTMLElement>('.question')!
}
const button = (name: string) =>
  [...document.querySelectorAll<HTMLButtonElement>('.question button')].find((each) =>
    each.textContent?.trim().startsWith(name),
  )
const press = (node: HTMLElement, key: string, more: KeyboardEventInit = {}) =>
  node.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more }))

test('an approval counts for a person only if somebody is known who asked', async () => {
  show(question())
  expect(button('Always for this person')).toBeUndefined()
  void unmount(mounted!)

  show(question({ person: 'telegram:eva' }))
  expect(button('Always for this person')?.title).toContain('for telegram:eva, whatever its arguments are')
  button('Always for this person')?.click()
  await vi.waitFor(() =>
    expect(sent).toEqual([['/api/v1/questions/q1/answer', { decision: 'approve', always: 'person' }]]),
  )
})

test('an answer is sent once, and the second click of a double click is ignored', async () => {
  show(question())
  button('Approve')?.dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 2 }))
  flushSync()
  expect(sent).toEqual([])

  button('Approve')?.click()
  button('Approve')?.click()
  flushSync()
  expect(button('Approve')?.disabled).toBe(true)
  await vi.waitFor(() => expect(sent).toHaveLength(1))
})

test('letters work on the card itself, unless they are switched off, held down or pressed elsewhere', async () => {
  const card = show(question())
  press(card, 'Enter')
  press(card, 'a', { repeat: true })
  press(card, 'a', { ctrlKey: true })
  press(button('Approve')!, 'a')
  preferences.letters = false
  press(card, 'a')
  preferences.letters = true
  flushSync()
  expect(sent).toEqual([])

  press(card, 'a')
  await vi.waitFor(() => expect(sent[0]?.[1]).toEqual({ decision: 'approve' }))
})

test('arguments that were not changed are not sent', async () => {
  show(question())
  button('Edit arguments')?.click()
  flushSync()
  button('Approve with these arguments')?.click()

  await vi.waitFor(() => expect(sent[0]?.[1]).toEqual({ decision: 'approve' }))
})

test('options are answered by their number', async () => {
  const card = show(question({ kind: 'choice', text: 'Which?', options: ['Red', 'Gr\u202een'] }))
  expect(button('Gr\\u202een')).toBeDefined()
  press(card, '2')

  await vi.waitFor(() => expect(sent[0]?.[1]).toEqual({ decision: 'approve', text: 'Gr\u202een' }))
})

test('new questions come last, and one that was decided stays with its outcome until it is removed', async () => {
  const list = new QuestionList('s')
  open = [question({ id: 'a' }), question({ id: 'b' })]
  await list.load()
  expect(list.items.map((each) => each.id)).toEqual(['a', 'b'])

  open = [question({ id: 'b' }), question({ id: 'c' })]
  later = { a: answered({}, { id: 'a' }) }
  await list.load()
  expect(list.items.map((each) => [each.id, each.state])).toEqual([
    ['a', 'answered'],
    ['b', 'open'],
    ['c', 'open'],
  ])

  open = []
  later = { b: answered({}, { id: 'b' }) }
  await list.load()
  expect(list.items.map((each) => each.id)).toEqual(['a', 'b'])
  list.prune()
  expect(list.items).toEqual([])
})
