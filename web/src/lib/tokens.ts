import type { UsageRow } from './types'

type Tokens = Pick<UsageRow, 'input_tokens' | 'output_tokens' | 'cache_read_tokens' | 'cache_write_tokens'>

/** All tokens that a model read or wrote. Input is without the cache; reasoning is part of the output. */
export function allTokens(used: Tokens): number {
  return used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens
}
