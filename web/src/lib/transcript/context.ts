/** How full a model's context is, in words. */
import type { CompactionInfo, ContextInfo } from '../api/schema'
import { formatTokens } from '../format'
import { t, type MessageKey } from '../i18n.svelte'

/** How much of the window is used, and where it is compacted, in one sentence. */
export function contextText(context: ContextInfo, language: string): string {
  const used = formatTokens(context.used)
  const parts = [
    context.window && context.percent !== null
      ? t('context.ofWindow', {
          used,
          window: formatTokens(context.window),
          percent: context.percent.toLocaleString(language, { maximumFractionDigits: 0 }),
        })
      : t('context.used', { used }),
  ]
  if (context.threshold) parts.push(t('context.compactsAt', { limit: formatTokens(context.threshold) }))
  return `${t('context.title')}: ${parts.join(', ')}`
}

/** What the model reads instead of the beginning of the session, one sentence each. */
export function compactionTexts(compaction: CompactionInfo): string[] {
  const texts: string[] = []
  if (compaction.summary && compaction.through) texts.push(t('context.summaryUpTo', { seq: compaction.through }))
  if (compaction.kept.length)
    texts.push(t('context.kept', { seqs: compaction.kept.map((seq) => `#${seq}`).join(', ') }))
  if (compaction.shortened_through) texts.push(t('context.shortenedUpTo', { seq: compaction.shortened_through }))
  return texts
}

const KINDS: Record<string, MessageKey> = {
  system: 'context.system',
  tools: 'context.tools',
  summary: 'context.summary',
  user: 'context.user',
  assistant: 'context.assistant',
  tool: 'context.tool',
}

/** The name of a kind of content; a kind that this version does not know has its own name. */
export function kindName(kind: string): string {
  const key = KINDS[kind]
  return key ? t(key) : kind
}
