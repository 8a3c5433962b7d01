/** Long outputs come cut; this fetches one as it was. */
import { get } from './api'
import type { EntryWindow, Json, ToolResultPart } from './types'

export async function wholeOutput(sessionId: string, seq: number, callId: string): Promise<Json> {
  // The log has what was taken back too: an earlier version can be looked at as a whole.
  const found = await get<EntryWindow>(`/sessions/${sessionId}/entries`, { view: 'log', after: seq - 1, limit: 1 })
  const isIt = (part: { type?: string }): part is ToolResultPart =>
    part.type === 'tool_result' && (part as ToolResultPart).call_id === callId
  return found.items.flatMap((entry) => entry.parts ?? []).find(isIt)?.content ?? null
}
