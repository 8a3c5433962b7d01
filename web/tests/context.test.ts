import { expect, test } from 'vitest'
import '../src/lib/page-messages'
import { compactionTexts, contextText, kindName } from '../src/lib/transcript/context'
import type { ContextInfo } from '../src/lib/api/schema'

const context = (more: Partial<ContextInfo>): ContextInfo => ({
  used: 20_000,
  window: 128_000,
  threshold: 89_600,
  percent: 15.6,
  by_kind: {},
  model: null,
  compaction: null,
  status: 'reported',
  ...more,
})

test('the size of a context says how much of the window is used, and when it is compacted', () => {
  expect(contextText(context({}), 'en')).toBe('Context: 20k of 128k tokens used (16 %), compacted at 90k')
  expect(contextText(context({ window: null, threshold: null, percent: null }), 'en')).toBe('Context: 20k tokens')
})

test('a compaction says what the model reads instead', () => {
  const compaction = { seq: 9, through: 7, summary: 'They met.', kept: [2, 3], shortened_through: 0 }

  expect(compactionTexts(compaction)).toEqual([
    'The model reads a summary of the messages up to #7.',
    'It still reads these word for word: #2, #3.',
  ])
  expect(compactionTexts({ ...compaction, summary: '', through: 0, kept: [], shortened_through: 5 })).toEqual([
    'Long tool outputs up to #5 are shortened.',
  ])
  expect(kindName('tool')).toBe('Tool outputs')
  expect(kindName('holograms')).toBe('holograms')
})
