import { afterAll, expect, test } from 'vitest'
import '../src/lib/page-messages'
import type { Entry } from '../src/lib/api/types'
import { loadLanguage } from '../src/lib/i18n.svelte'
import { recordText, refusedMessage } from '../src/lib/transcript/record-text'
import { recordOf } from '../src/lib/transcript/exchanges'
import { preferences } from '../src/lib/ui/preferences.svelte'

const STORED = 'as the server wrote it'
const entry = (role: string, record?: object, more: object = {}): Entry =>
  ({ kind: 'message', seq: 9, role, text: STORED, extra: record && { record }, ...more }) as unknown as Entry
const said = (record: object, more: object = {}) => recordText(entry('system', record, more))

async function use(language: string) {
  preferences.language = language
  await loadLanguage()
}
afterAll(() => use('en'))

test('a record is a system message that says what happened to the session', () => {
  expect(said({ kind: 'resumed', reason: 'its process died' })).toBe(
    'The turn went on after an interruption: its process died',
  )
  expect(said({ kind: 'pin', seq: 4 })).toBe('Message 4 was pinned for the model')
  expect(recordOf(entry('user', { kind: 'pin' }))).toBeNull()
  expect(recordOf(entry('system'))).toBeNull()
})

const CHANGED = { agent: null, model: 'p:large', persona: null, tools: ['files_*', 'search'] }
test.each([
  ['en', 'Ada chose the default agent, the model p:large, no persona, and the tools files_*, search'],
  ['de', 'Ada hat gewählt: Standardagent, Modell p:large, keine Persona und Werkzeuge files_*, search'],
  ['ru', 'Ada выбирает: агент по умолчанию, модель p:large, без роли и инструменты files_*, search'],
  ['zh-Hans', 'Ada 选择了：默认代理、模型 p:large、无角色和工具 files_*, search'],
])('a choice is told in %s', async (language, text) => {
  await use(language)

  expect(said({ kind: 'settings', changed: CHANGED, by: 'Ada' })).toBe(text)
})

test('a choice is told with who made it: the owner at the workbench, a token, or nobody', async () => {
  await use('de')
  const changed = { tools: [] }
  const owner = { person: { id: 'owner', name: 'The owner' } }

  expect(said({ kind: 'settings', changed, by: 'The owner' }, owner)).toBe('Der Besitzer hat gewählt: keine Werkzeuge')
  expect(said({ kind: 'settings', changed, by: 'grafana' }, { person: { id: '7', name: 'grafana' } })).toBe(
    'grafana hat gewählt: keine Werkzeuge',
  )
  expect(said({ kind: 'settings', changed, by: null }, { text: 'No tools were chosen.' })).toBe(
    'Gewählt: keine Werkzeuge',
  )
})

test.each([
  [{ agent: 'coder' }, 'writer', 'Den Agenten coder gibt es nicht mehr: writer antwortet stattdessen'],
  [{ model: 'm' }, 'writer', 'Der Agent writer bietet das Modell m nicht an: sein eigenes antwortet stattdessen'],
  [{ persona: 'pirate' }, null, 'Die Persona pirate gibt es nicht mehr: die Sitzung geht ohne Persona weiter'],
])('what is no longer there is named: %o', async (before, agent, text) => {
  await use('de')

  expect(said({ kind: 'settings', changed: {}, before, by: null, is_missing: true, agent })).toBe(text)
})

test.each([
  { kind: 'settings' },
  { kind: 'settings', changed: {}, by: 'Ada' },
  { kind: 'settings', changed: { model: 7 }, by: 'Ada' },
  { kind: 'settings', changed: { tools: 'all' }, by: 'Ada' },
  { kind: 'settings', changed: { model: 'm', mood: 'good' }, by: 'Ada' },
  { kind: 'settings', before: { agent: 'coder' }, is_missing: true, agent: null },
  { kind: 'settings', before: {}, is_missing: true },
  { kind: 'refused' },
  { kind: 'something new' },
])('a record that is not understood is shown as the server wrote it: %o', async (record) => {
  await use('de')

  expect(said(record)).toContain(STORED)
})

test.each([
  'There is no agent coder any more: writer answers instead.',
  'There is no persona pirate any more: the session goes on without one.',
])('an older record of what is no longer there is shown as the server wrote it: %s', async (text) => {
  await use('de')

  expect(said({ kind: 'settings', changed: { agent: null }, before: { agent: 'coder' }, by: null }, { text })).toBe(
    text,
  )
})

test('a removal by nobody in particular is told in the language of the page', async () => {
  await use('de')
  const record = { kind: 'settings', changed: { persona: null }, before: { persona: 'pirate' }, by: null }

  expect(said(record, { text: 'The persona was removed.' })).toBe('Gewählt: keine Persona')
  expect(said(record, { text: 'No persona was chosen.' })).toBe('Gewählt: keine Persona')
})

test.each([
  ['session:01k0', 'Budget dieser Sitzung'],
  ['agent:my writer', 'Budget des Agenten my writer'],
  ['model:llama3:8b', 'Budget des Modells llama3:8b'],
  ['profile:main', 'Budget des ganzen Profils'],
])('a refusal for the budget of %s is told in German', async (scope, name) => {
  await use('de')
  const reason = 'A budget is used up.'
  const budget = { scope, per: 'day', resets_at: '2026-03-03T00:00:00.000000Z' }
  const record = entry('system', { kind: 'refused', reason, budget }, { text: `${reason}\n\nwrite\nmore` })

  expect(recordText(record)).toMatch(
    new RegExp(`^Nicht beantwortet: ${name} \\(pro Tag\\) ist aufgebraucht\\. Beginnt neu: 0?[23]\\.`),
  )
  expect(refusedMessage(record)).toBe('write\nmore')
})

test('a refusal for another reason keeps that reason, apart from the message', async () => {
  await use('de')
  const record = entry('system', { kind: 'refused', reason: 'Too late.' }, { text: 'Too late.\n\nhello' })

  expect(recordText(record)).toBe('Too late.')
  expect(refusedMessage(record)).toBe('hello')
  expect(refusedMessage(entry('system', { kind: 'pin', seq: 1 }))).toBe('')
})

const ASKED = { kind: 'question', question_id: 'q1', question: 'approval', tool: 'send\u202e', text: 'may it?' }
const CHOSEN = { kind: 'question', question_id: 'q2', question: 'choice', text: 'Which?', state: 'answered', by: 'Ada' }
test.each([
  ['en', { ...ASKED, state: 'open' }, 'Asked whether the tool send\\u202e may be called'],
  ['de', { ...ASKED, state: 'open' }, 'Gefragt, ob das Werkzeug send\\u202e aufgerufen werden darf'],
  ['en', { ...CHOSEN, state: 'open' }, 'Asked: Which?'],
  ['en', { ...CHOSEN, decision: 'approve', answer: 'Red' }, 'Answered by Ada: Red (Which?)'],
  ['ru', { ...CHOSEN, decision: 'deny' }, 'Отклонено: Ada (Which?)'],
  ['zh-Hans', { ...ASKED, state: 'expired' }, '无人及时答复（send\\u202e）'],
  ['de', { ...ASKED, state: 'withdrawn' }, 'Eine Antwort ist nicht mehr nötig (send\\u202e)'],
  [
    'de',
    { ...ASKED, state: 'answered', decision: 'deny', by: 'The owner', answer: 'zu spät' },
    'Der Besitzer hat abgelehnt: zu spät (send\\u202e)',
  ],
  ['de', { ...ASKED, state: 'something new' }, STORED],
])('what was asked and decided is told in %s: %o', async (language, record, text) => {
  await use(language)

  expect(said(record)).toBe(text)
})
